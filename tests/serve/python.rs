//! OpenAI's own client for Python, where there is one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use libtest_mimic::{Failed, Trial};
use lockstep::serve::Options;

use crate::{start, stop};

const NAME: &str = "python::openai_reads_every_kind_of_answer";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where `cargo xtask openai` puts the client.
fn packages() -> PathBuf {
    root().join("target/openai")
}

fn python(arguments: &[&str]) -> std::io::Result<Output> {
    let mut command = Command::new("python3");
    command.args(arguments).stdin(Stdio::null()).env("PYTHONDONTWRITEBYTECODE", "1");
    if packages().is_dir() {
        command.env("PYTHONPATH", packages());
    }
    command.output()
}

/// Ignored where Python, or the client, is missing.
pub(crate) fn trial(is_list: bool) -> Trial {
    let probe = python(&["-c", "import openai"]);
    let reason = match probe {
        Ok(output) if output.status.success() => None,
        Ok(_) => Some("Python has no package openai; `cargo xtask openai` fetches it".to_owned()),
        Err(error) => Some(format!("python3: {error}")),
    };
    if let (Some(reason), false) = (&reason, is_list) {
        eprintln!("ignored: {NAME}: {reason}");
    }
    let is_ignored = reason.is_some();
    Trial::test(NAME, move || reason.map_or_else(run, |reason| Err(reason.into())))
        .with_ignored_flag(is_ignored)
}

fn run() -> Result<(), Failed> {
    let running = start(Options::default());
    let script = root().join("tests/serve/openai_client.py");
    let url = format!("{}/v1", running.url());
    let output = python(&[&script.display().to_string(), &url])?;
    stop(running);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.success() && out.trim_end().ends_with("ok") {
        true => Ok(()),
        false => Err(format!("{}: {out}{err}", output.status).into()),
    }
}
