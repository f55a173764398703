//! `cargo xtask kernels --check`: compiles every kernel for every supported architecture, with no GPU.
//!
//! The work is done by `lockstep kernels`, which has the texts and the options; this finds NVRTC for it: on the
//! loader's path, in the folder that `LOCKSTEP_NVRTC` names, or in the wheel that pip fetches into `target/`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};

/// The compiler that the digests of kernels are quoted for.
const REQUIREMENT: &str = "nvidia-cuda-nvrtc==13.0.*";
/// Where the library lies in the wheel.
const LIBRARY: &str = "nvidia/cu13/lib";

/// Compiles the kernels and passes on the exit code.
pub(crate) fn run(root: &Path, check: bool) -> anyhow::Result<ExitCode> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).env("LD_LIBRARY_PATH", library_path(root)?);
    // The profile of the tests, so that their artifacts serve.
    cargo.args(["run", "--quiet", "--locked", "--profile", "test"]);
    cargo.args(["--package", "lockstep", "--", "kernels"]);
    if check {
        cargo.arg("--check");
    }
    let status = cargo.stdin(Stdio::null()).status().context("starting cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The loader's path with NVRTC on it.
pub(crate) fn library_path(root: &Path) -> anyhow::Result<OsString> {
    let folder = match std::env::var_os("LOCKSTEP_NVRTC") {
        Some(folder) => PathBuf::from(folder),
        None => fetched(root)?,
    };
    let mut path = OsString::from(&folder);
    if let Some(before) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(before);
    }
    Ok(path)
}

/// The library's folder below `target/`, fetched if it is not there.
fn fetched(root: &Path) -> anyhow::Result<PathBuf> {
    let home = root.join("target").join("nvrtc");
    let library = home.join(LIBRARY);
    if library.join("libnvrtc.so.13").exists() {
        return Ok(library);
    }
    eprintln!("downloading {REQUIREMENT}");
    let scratch = root.join("target").join(format!("nvrtc-{}", std::process::id()));
    fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    let result = fetch(&scratch, &home);
    // Leaving it behind would only cost space.
    let _ = fs::remove_dir_all(&scratch);
    result?;
    ensure!(library.exists(), "the wheel holds no {LIBRARY}");
    Ok(library)
}

fn fetch(scratch: &Path, home: &Path) -> anyhow::Result<()> {
    let pip = ["-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"];
    python(Command::new("python3").args(pip).arg("--dest").arg(scratch).arg(REQUIREMENT))?;
    let wheel = fs::read_dir(scratch)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .context("pip downloaded no wheel")?;
    let unpacked = scratch.join("unpacked");
    python(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked))?;
    // In place by a rename, so that a library at its path is always whole.
    let _ = fs::remove_dir_all(home);
    fs::rename(&unpacked, home).with_context(|| format!("moving NVRTC to {}", home.display()))
}

fn python(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.context("starting python3, which must be installed with pip")?;
    ensure!(status.success(), "python3 ended with {status}");
    Ok(())
}
