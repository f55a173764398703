//! What guards the snapshots, seen to go red: this program as a child, on a folder of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::golden::{self, FOLDER};

const CHILD: &str = "g1::golden::tiny";
const FILE: &str = "tiny-bf16-sm90.snap";

pub(crate) fn trials() -> [Trial; 4] {
    [
        Trial::test("g1::review::a_missing_snapshot_fails_and_is_proposed", missing),
        Trial::test("g1::review::nothing_is_written_in_ci", in_ci),
        Trial::test("g1::review::force_pass_passes_nothing", force_pass),
        Trial::test("g1::review::no_update_overwrites_a_snapshot", overwriting),
    ]
}

/// Runs the trial of `tiny` on `folder`; whether it passed, and what it printed.
fn child(folder: &Path, variables: &[(&str, &str)]) -> Result<(bool, String), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([CHILD, "--exact", "--test-threads", "1"]).env(FOLDER, folder);
    // So that no cargo is asked where the workspace is.
    command.env("INSTA_WORKSPACE_ROOT", folder);
    for variable in ["INSTA_UPDATE", "INSTA_FORCE_PASS", "CI", "TF_BUILD", "LOCKSTEP_REQUIRE_GPU"] {
        command.env_remove(variable);
    }
    command.env("LOCKSTEP_DEVICE", "host").envs(variables.iter().copied());
    let output = command.output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    match output.status.code() {
        Some(0) => Ok((true, text)),
        Some(101) => Ok((false, text)),
        code => Err(format!("the child ended with {code:?}: {text}").into()),
    }
}

/// A folder with the snapshot as it is committed, one digit of the last hash changed if `spoilt`.
fn with_snapshot(spoilt: bool) -> Result<(tempfile::TempDir, String), Failed> {
    let folder = tempfile::tempdir()?;
    let mut text = fs::read_to_string(golden::folder().join(FILE))?;
    if spoilt {
        let digit = text.trim_end().len() - 1;
        let other = if text.as_bytes()[digit] == b'0' { "1" } else { "0" };
        text.replace_range(digit..=digit, other);
    }
    fs::write(folder.path().join(FILE), &text)?;
    Ok((folder, text))
}

fn expect(condition: bool, what: &str, output: &str) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(format!("{what}\n{output}").into()) }
}

/// Goal: no snapshot is no pass, and what is proposed passes once it is accepted.
fn missing() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (passed, output) = child(folder.path(), &[])?;
    expect(!passed && output.contains("there is no snapshot"), "it must fail", &output)?;
    let proposed = folder.path().join(format!("{FILE}.new"));
    expect(proposed.exists(), "nothing was proposed", &output)?;
    expect(output.contains("cargo insta review"), "it must say what to do", &output)?;
    fs::rename(&proposed, folder.path().join(FILE))?;
    let (passed, output) = child(folder.path(), &[])?;
    expect(passed, "the accepted snapshot must hold", &output)
}

fn in_ci() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (passed, output) = child(folder.path(), &[("CI", "true")])?;
    expect(!passed, "it must fail", &output)?;
    expect(fs::read_dir(folder.path())?.next().is_none(), "something was written", &output)
}

/// Goal: one changed digit of one hash is red, whatever insta is told; the same file unchanged is green.
fn force_pass() -> Result<(), Failed> {
    let forced = [("INSTA_FORCE_PASS", "1")];
    let (folder, _) = with_snapshot(false)?;
    let (passed, output) = child(folder.path(), &forced)?;
    expect(passed, "an unchanged snapshot must hold", &output)?;
    let (folder, _) = with_snapshot(true)?;
    let (passed, output) = child(folder.path(), &forced)?;
    expect(!passed && output.contains("layer digests"), "it must fail", &output)
}

/// Goal: no setting turns red to green by the next run.
fn overwriting() -> Result<(), Failed> {
    for update in ["always", "1", "force", "unseen"] {
        let (folder, text) = with_snapshot(true)?;
        for _ in 0..2 {
            let (passed, output) = child(folder.path(), &[("INSTA_UPDATE", update)])?;
            expect(!passed && output.contains("is refused"), "it must fail", &output)?;
        }
        let now = fs::read_to_string(folder.path().join(FILE))?;
        expect(now == text, "the snapshot was overwritten", update)?;
    }
    Ok(())
}
