//! `cargo xtask openai` and `cargo xtask pytest`: fetch a package of Python's, for the tests that need it: OpenAI's client asks
//! our server, and pytest runs the certifier's reproducers.
//!
//! Installed through pip and whatever index pip is set up to use, into a folder of its own: nothing of the system's Python
//! changes. The folder is put in place by a rename, so at its path it is always whole.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::model::python;

/// A package, in the version that its test was written against.
pub(crate) struct Package {
    name: &'static str,
    requirement: &'static str,
}

pub(crate) const OPENAI: Package = Package { name: "openai", requirement: "openai==3.57.0" };
pub(crate) const PYTEST: Package = Package { name: "pytest", requirement: "pytest==9.2.0" };

/// Installs the package unless it is there, and prints its path.
pub(crate) fn run(root: &Path, package: &Package) -> anyhow::Result<ExitCode> {
    let Package { name, requirement } = package;
    let target = root.join("target");
    fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
    let path = target.join(name);
    if !path.exists() {
        let scratch = target.join(format!(".{name}-{}", std::process::id()));
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"];
        let install = |folder: &Path| {
            let mut command = Command::new("python3");
            python(command.args(pip).arg("--target").arg(folder).arg(requirement))
        };
        eprintln!("installing {requirement}");
        let installed = install(&scratch).with_context(|| format!("installing {requirement}"));
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
