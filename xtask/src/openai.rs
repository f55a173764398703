//! `cargo xtask openai`: fetches OpenAI's client for Python, for the test that asks our server through it.
//!
//! Installed through pip and whatever index pip is set up to use, into a folder of its own: nothing of the system's Python
//! changes. The folder is put in place by a rename, so at its path it is always whole.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::model::python;

/// The version that the test was written against.
const REQUIREMENT: &str = "openai==3.57.0";

/// Installs the client unless it is there, and prints its path.
pub(crate) fn run(root: &Path) -> anyhow::Result<ExitCode> {
    let target = root.join("target");
    fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
    let path = target.join("openai");
    if !path.exists() {
        let scratch = target.join(format!(".openai-{}", std::process::id()));
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"];
        let install = |folder: &Path| {
            let mut command = Command::new("python3");
            python(command.args(pip).arg("--target").arg(folder).arg(REQUIREMENT))
        };
        eprintln!("installing {REQUIREMENT}");
        let installed = install(&scratch).with_context(|| format!("installing {REQUIREMENT}"));
        let moved = installed.and_then(|_| {
            fs::rename(&scratch, &path).with_context(|| format!("moving it to {}", path.display()))
        });
        if moved.is_err() {
            // What cannot be removed is only left-over space under `target`.
            let _ = fs::remove_dir_all(&scratch);
        }
        moved?;
    }
    println!("{}", path.display());
    Ok(ExitCode::SUCCESS)
}
