//! The programs of a campaign: built once, whatever the number of mutants, by cargo in the copy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::schemata::Numbered;
use super::tree::Copy;

/// The program that judges engine and kernels.
pub(super) const JUDGE: &str = "mutants";
/// What the unit tests are called where a test target is named.
pub(super) const UNIT_TESTS: &str = "lib";

/// Executables by name of the test target.
pub(super) type Programs = BTreeMap<String, PathBuf>;

/// Errors that the compiler found in mutants: (id, message).
pub(super) type Refused = Vec<(String, String)>;

/// The workspace's, as in `cargo test --workspace`, so that dependencies are built once; without the command line: a binary
/// of the copy would take the place of the tree's own.
const FEATURES: [&str; 4] = ["--workspace", "--no-default-features", "--features", "lockstep/cuda"];

/// The target folder that the tree's own builds use, so that dependencies are built once.
pub(super) fn target_folder(root: &Path) -> anyhow::Result<PathBuf> {
    let mut cargo = cargo(root);
    cargo.args(["metadata", "--format-version", "1", "--no-deps", "--locked"]);
    let output = cargo.output().context("starting cargo")?;
    ensure!(output.status.success(), "cargo metadata ended with {}", output.status);
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let folder = metadata["target_directory"].as_str();
    Ok(PathBuf::from(folder.context("cargo metadata names no target folder")?))
}

/// Builds test targets of the copy.
pub(super) fn build(
    copy: &Copy,
    target: &Path,
    numbered: &[Numbered<'_>],
    names: &[&str],
) -> anyhow::Result<(Programs, Refused)> {
    let mut cargo = cargo(&copy.root);
    cargo.args(["test", "--no-run"]);
    for name in names {
        match *name {
            UNIT_TESTS => cargo.arg("--lib"),
            name => cargo.args(["--test", name]),
        };
    }
    let (programs, refused) = messages(cargo, copy, target, numbered)?;
    let complete = names.iter().all(|name| programs.contains_key(*name));
    ensure!(complete || !refused.is_empty(), "cargo built {programs:?}, expected {names:?}");
    Ok((programs, refused))
}

/// Builds the judge of the tree itself, which has no mutant.
pub(super) fn build_plain(root: &Path) -> anyhow::Result<PathBuf> {
    let mut cargo = cargo(root);
    // The features of `cargo test --workspace`, so that its artifacts serve.
    cargo.args(["test", "--no-run", "--locked", "--workspace", "--test", JUDGE]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let output = cargo.stderr(Stdio::inherit()).output().context("starting cargo")?;
    ensure!(output.status.success(), "cargo test --no-run ended with {}", output.status);
    let (programs, _) = read(&String::from_utf8_lossy(&output.stdout), |_, _| None);
    programs.get(JUDGE).cloned().with_context(|| format!("cargo built no {JUDGE}"))
}

fn cargo(folder: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder).stdin(Stdio::null());
    cargo
}

/// Runs cargo in the copy; an error that stands in a mutant is that mutant's.
fn messages(
    mut cargo: Command,
    copy: &Copy,
    target: &Path,
    numbered: &[Numbered<'_>],
) -> anyhow::Result<(Programs, Refused)> {
    cargo.args(["--locked", "--message-format", "json", "--quiet"]);
    cargo.args(FEATURES).arg("--target-dir").arg(target);
    let output = cargo.stderr(Stdio::piped()).output().context("starting cargo")?;
    let id_of = |file: &str, line: usize| {
        let number = copy.mutant_at(file, line)?;
        let found = numbered.iter().find(|n| n.number == number);
        found.map(|n| n.mutant.id.clone())
    };
    let (programs, errors) = read(&String::from_utf8_lossy(&output.stdout), id_of);
    let (refused, other): (Vec<_>, Vec<_>) = errors.into_iter().partition(|(id, _)| id.is_some());
    if !output.status.success() && refused.is_empty() {
        let texts: Vec<String> = other.into_iter().map(|(_, text)| text).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("the copy does not build:\n{}\n{errors}", texts.join("\n"));
    }
    let refused = refused.into_iter().filter_map(|(id, text)| Some((id?, text))).collect();
    Ok((programs, refused))
}

/// Executables, and errors with the mutant in whose lines they stand.
fn read(
    stdout: &str,
    id_of: impl Fn(&str, usize) -> Option<String>,
) -> (Programs, Vec<(Option<String>, String)>) {
    let mut programs = Programs::new();
    let mut errors = Vec::new();
    for line in stdout.lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        if let Some(path) = message["executable"].as_str() {
            let target = &message["target"];
            let name = target["name"].as_str().unwrap_or_default();
            let kinds = target["kind"].as_array();
            let is_library = kinds.is_some_and(|k| k.iter().any(|k| k == "lib"));
            let name = if is_library { UNIT_TESTS } else { name };
            if message["profile"]["test"] == true {
                programs.insert(name.to_owned(), PathBuf::from(path));
            }
        }
        let compiler = &message["message"];
        if message["reason"] != "compiler-message" || compiler["level"] != "error" {
            continue;
        }
        let spans = compiler["spans"].as_array().cloned().unwrap_or_default();
        let id = spans.iter().find_map(|span| {
            let line = span["line_start"].as_u64()?;
            id_of(span["file_name"].as_str()?, line as usize)
        });
        errors.push((id, compiler["rendered"].as_str().unwrap_or_default().to_owned()));
    }
    (programs, errors)
}
