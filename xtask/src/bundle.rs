//! `cargo xtask bundle`: a folder that runs on a GPU machine with a driver and NVRTC and no Rust toolchain.
//!
//! Holds the test programs that need a GPU, the command line, the data files that they read, and `run.sh`. The
//! programs are those of `cargo test` (of its release profile with `--release`), stripped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};

/// Test targets that go into a bundle, by Cargo's name: those that need neither the repository nor a toolchain.
const TESTS: [&str; 5] = ["relations", "x1", "golden", "real_model", "fidelity"];
/// The command line.
const PROGRAM: &str = "lockstep";
/// Data, relative to the repository, and where it lies in the bundle, in which `golden` is a program; what is not there
/// is left out.
const DATA: [(&str, &str); 5] = [
    ("golden", "snapshots"),
    ("tests/regressions", "tests/regressions"),
    ("tests/data/text", "tests/data/text"),
    ("tests/data/weights", "tests/data/weights"),
    ("examples/prompts.txt", "examples/prompts.txt"),
];

const RUN: &str = include_str!("bundle/run.sh");

/// Builds the bundle and prints where it is.
pub(crate) fn run(root: &Path, release: bool) -> anyhow::Result<ExitCode> {
    let programs = build(root, release)?;
    let folder = root.join("target").join("bundle");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    for (name, path) in &programs {
        let to = folder.join(name);
        fs::copy(path, &to).with_context(|| format!("copying {}", path.display()))?;
        strip(&to);
    }
    for (from, to) in DATA {
        let from = root.join(from);
        if from.exists() {
            copy(&from, &folder.join(to))?;
        }
    }
    let script = folder.join("run.sh");
    fs::write(&script, RUN).with_context(|| format!("writing {}", script.display()))?;
    make_executable(&script)?;
    let mut bytes = 0;
    for (name, _) in &programs {
        bytes += fs::metadata(folder.join(name))?.len();
    }
    println!("{} ({:.1} MB of programs)", folder.display(), bytes as f64 / 1e6);
    Ok(ExitCode::SUCCESS)
}

/// Builds the programs; returns (name in the bundle, path).
fn build(root: &Path, release: bool) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args(["test", "--no-run", "--locked", "--package", PROGRAM]);
    cargo.args(["--bin", PROGRAM, "--message-format", "json-render-diagnostics"]);
    for test in TESTS {
        cargo.args(["--test", test]);
    }
    if release {
        cargo.arg("--release");
    }
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.context("starting cargo")?;
    ensure!(output.status.success(), "cargo test --no-run ended with {}", output.status);
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let Some(path) = message["executable"].as_str() else { continue };
        let name = message["target"]["name"].as_str().unwrap_or_default();
        let is_test = message["profile"]["test"] == true;
        if is_test && TESTS.contains(&name) {
            programs.push((name.to_owned(), PathBuf::from(path)));
        } else if !is_test && name == PROGRAM {
            programs.push((PROGRAM.to_owned(), PathBuf::from(path)));
        }
    }
    ensure!(
        programs.len() == TESTS.len() + 1,
        "cargo built {programs:?}, expected {PROGRAM} and {TESTS:?}"
    );
    Ok(programs)
}

/// Makes a program smaller, where there is a `strip`.
pub(crate) fn strip(path: &Path) {
    let stripped = Command::new("strip").arg(path).stdin(Stdio::null()).status();
    if !stripped.is_ok_and(|status| status.success()) {
        eprintln!("no strip: {} keeps its debug information", path.display());
    }
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    Ok(())
}

#[cfg(unix)]
fn make_executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("making {} executable", path.display()))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> anyhow::Result<()> {
    Ok(())
}
