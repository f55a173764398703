//! `lockstep certify merge` and `certify --lives` as a user meets them.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::server::Server;
use crate::{lockstep, text};

/// A run of a second or so against the embedded server.
fn embedded(folder: &Path, mode: &str, nonce: &str, json: &str) {
    let arguments = [
        "certify",
        "--mode",
        mode,
        "--nonce",
        nonce,
        "--json",
        json,
        "-q",
        "--concurrency",
        "4",
        "--prompts",
        "4",
        "--prompt-tokens",
        "17,40",
        "--min-answers",
        "1",
        "--rounds",
        "2",
    ];
    let output = lockstep(folder, &arguments);
    let code = if mode == "invariant" { 0 } else { 1 };
    assert_eq!(
        output.status.code(),
        Some(code),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

fn json(folder: &Path, name: &str) -> Value {
    let bytes = std::fs::read(folder.join(name)).expect(name);
    serde_json::from_slice(&bytes).expect("JSON")
}

/// Exit code 2, one line on stderr that says this, nothing on stdout.
#[track_caller]
fn refused(output: &Output, says: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{out}{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.starts_with("lockstep: ") && err.contains(says) && out.is_empty(), "{out}{err}");
}

#[test]
fn what_is_no_certificate_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("none.json", "[1, 2");
    write("old.json", r#"{"schema": "lockstep.certificate/1.0"}"#);
    write("new.json", r#"{"schema": "lockstep.certificate/3.0"}"#);
    write("case.json", r#"{"schema": "lockstep.case/2.0"}"#);
    write("bare.json", r#"{"schema": "lockstep.certificate/2.0"}"#);
    let huge = std::fs::File::create(folder.path().join("huge.json")).unwrap();
    huge.set_len((64 << 20) + 1).unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    let bad: &[(&[&str], &str)] = &[
        (&[], "0 files, expected 2 to 128 certificates"),
        (&["old.json"], "1 files, expected 2"),
        (&["missing.json", "old.json"], "missing.json: "),
        (&["none.json", "old.json"], "none.json: not a certificate"),
        (
            &["old.json", "none.json"],
            "old.json: not a certificate: schema lockstep.certificate/1.0 is too old",
        ),
        (&["new.json", "none.json"], "too new"),
        (&["case.json", "none.json"], "expected lockstep.certificate"),
        (&["bare.json", "none.json"], "missing field"),
        (&["huge.json", "none.json"], "larger than 67108864 bytes"),
        (&["folder", "none.json"], "folder: not a regular file"),
        (&["a.json", "b.json", "--nonce", "1"], "unexpected argument"),
    ];
    for (files, says) in bad {
        let arguments: Vec<&str> = ["certify", "merge"].iter().chain(*files).copied().collect();
        refused(&lockstep(folder.path(), &arguments), says);
    }
}

/// Certificates of the embedded server, each at an address of its own: equal answers, another nonce, and a broken one.
#[test]
fn certificates_of_addresses_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let merge = |files: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        command.args(["certify", "merge"]).args(files).current_dir(folder.path());
        // An address in the environment is not one that was given.
        command.env("OPENAI_BASE_URL", "http://127.0.0.1:1/v1").output().unwrap()
    };
    for (mode, nonce, name) in [
        ("invariant", "1", "a.json"),
        ("invariant", "1", "b.json"),
        ("invariant", "2", "c.json"),
        ("batch-dependent", "1", "d.json"),
    ] {
        embedded(folder.path(), mode, nonce, name);
    }
    let held = merge(&["a.json", "b.json", "--json", "m.json"]);
    let out = text(&held.stdout);
    assert_eq!(held.status.code(), Some(0), "{out}{}", text(&held.stderr));
    assert!(out.starts_with("held: ") && out.contains("0 of 2 addresses broken, 2 held"), "{out}");
    let document = json(folder.path(), "m.json");
    assert_eq!(document["schema"], "lockstep.certificates/1.0");
    assert_eq!((&document["verdict"], &document["between"]), (&"held".into(), &"addresses".into()));
    assert_eq!(document["compared"]["prompts"], 4);
    assert_eq!(document["members"][1]["file"], "b.json");
    assert_eq!(document["groups"][0]["members"], serde_json::json!([1, 2]));

    refused(&merge(&["a.json", "./a.json"]), "a.json and ./a.json are the same certificate");

    let apart = merge(&["a.json", "c.json"]);
    assert_eq!(apart.status.code(), Some(3), "{}", text(&apart.stdout));
    let says =
        "no prompt in common in addresses 1 and 2: run them with the same --seed and --nonce";
    assert!(text(&apart.stdout).contains(says), "{}", text(&apart.stdout));

    let broken = merge(&["a.json", "d.json", "b.json", "-q", "--json", "-"]);
    assert_eq!(broken.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&broken.stdout).expect("a document alone");
    assert_eq!(document["counts"]["broken"], 1);
    let err = text(&broken.stderr);
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.starts_with("BROKEN: ") && err.contains("1 of 3 addresses broken"), "{err}");
}

/// The server of a few lines, asked for its first answers and repeats alone.
fn lives(folder: &Path, url: &str, count: &str, command: &str, more: &[&str]) -> Output {
    let arguments = [
        "certify",
        url,
        "--lives",
        count,
        "--restart-command",
        command,
        "--json",
        "out.json",
        "--arms",
        "first,repeat",
        "--prompts",
        "3",
        "--prompt-tokens",
        "5,9",
        "--concurrency",
        "2",
        "--answer-tokens",
        "4",
    ];
    let arguments: Vec<&str> = arguments.iter().chain(more).copied().collect();
    lockstep(folder, &arguments)
}

#[test]
fn lives_are_judged_one_after_the_other_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("lives"), true);
    let output = lives(
        folder.path(),
        server.url(),
        "3",
        "echo on stdout; echo >> lives",
        &["--html", "p.html"],
    );
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(out.starts_with("BROKEN: m at "), "{out}");
    let says = "answers alone to the same prompts differ between lives: life 2 of 3 answers 3 of 3 prompts otherwise than life 1";
    assert!(out.contains(says), "{out}");
    // What the command prints is no part of the report.
    assert!(err.contains("on stdout\n") && !out.contains("on stdout"), "{out}{err}");
    assert!(err.contains("life 3 of 3: "), "{err}");
    let merged = json(folder.path(), "out.json");
    assert_eq!((&merged["between"], &merged["counts"]["of"]), (&"lives".into(), &3.into()));
    let nonces: Vec<Value> = (1..=3)
        .map(|life| {
            let name = format!("out.life-{life}.json");
            assert_eq!(merged["members"][life - 1]["file"], name);
            json(folder.path(), &name)["settings"]["nonce"].clone()
        })
        .collect();
    assert!(nonces.iter().all(|nonce| *nonce == nonces[0]), "{nonces:?}");
    assert!(folder.path().join("p.html").exists());
    assert_eq!(std::fs::read(folder.path().join("lives")).unwrap(), b"\n\n");

    // The same by hand, from the files.
    let files = ["certify", "merge", "out.life-1.json", "out.life-2.json", "out.life-3.json"];
    let by_hand = lockstep(folder.path(), &files);
    assert_eq!(by_hand.status.code(), Some(1));
    assert!(text(&by_hand.stdout).contains(says), "{}", text(&by_hand.stdout));
}

/// Equal answers in each life are no difference; and a command that goes on, as a server in the foreground does, is left alone
/// once the address stopped answering and answers again.
#[test]
fn a_command_that_goes_on_is_the_next_life() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("lives"), false);
    let command = "exec > /dev/null 2>&1; sleep 0.3; echo >> lives; sleep 5; echo >> over";
    let began = std::time::Instant::now();
    let output = lives(folder.path(), server.url(), "2", command, &[]);
    let out = text(&output.stdout);
    assert!(began.elapsed().as_secs() < 5, "it was waited for");
    assert_eq!(output.status.code(), Some(3), "{out}{}", text(&output.stderr));
    let merged = json(folder.path(), "out.json");
    let compared = &merged["compared"];
    assert_eq!((&compared["prompts"], &compared["differing"]), (&3.into(), &0.into()), "{out}");
    assert_eq!(std::fs::read(folder.path().join("lives")).unwrap(), b"\n");
}

#[test]
fn a_restart_that_fails_is_an_undecided_life() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("lives"), false);
    for (command, more, says) in [
        ("exit 7", &[][..], "the restart command failed: exit status: 7"),
        (
            "exec sleep 60",
            &["--restart-timeout", "0.5"],
            "the restart command has not returned, and the address has not stopped answering within 0.5 s",
        ),
    ] {
        let output = lives(folder.path(), server.url(), "4", command, more);
        let out = text(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{out}{}", text(&output.stderr));
        assert!(out.contains(&format!("life 2 of 4 is undecided: {says}")), "{out}");
        assert!(out.contains("life 4 of 4 is undecided: not begun: the 2 restarts"), "{out}");
        assert_eq!(json(folder.path(), "out.json")["counts"]["undecided"], 4);
        assert!(!folder.path().join("out.life-2.json").exists());
    }
}

#[test]
fn lives_take_an_address_a_command_and_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let url = "http://127.0.0.1:1/v1";
    let with = |more: &[&str]| {
        let arguments = ["certify", url, "--lives", "2", "--restart-command", "true"];
        let arguments: Vec<&str> = arguments.iter().chain(more).copied().collect();
        lockstep(folder.path(), &arguments)
    };
    refused(&with(&["--power"]), "'--power");
    refused(&with(&["--dry-run"]), "'--dry-run'");
    refused(&with(&["--restart-timeout", "0"]), "expected a number of seconds above 0");
    refused(&with(&["--json", "no/such/x.json"]), "no/such/x.json");
    let bad: &[(&[&str], &str)] = &[
        (&["certify", url, "--lives", "2"], "--restart-command"),
        (&["certify", url, "--restart-command", "true"], "--lives"),
        (&["certify", url, "--restart-timeout", "3"], "--lives"),
        (&["certify", url, "--lives", "1", "--restart-command", "true"], "2..=100"),
        (&["certify", url, "--lives", "101", "--restart-command", "true"], "2..=100"),
        (&["certify", "--lives", "2", "--restart-command", "true"], "--lives needs an address"),
        (&["certify", url, "merge", "a.json"], "'merge' cannot be used with '[URL]'"),
    ];
    for (arguments, says) in bad {
        refused(&lockstep(folder.path(), arguments), says);
    }
    let help = text(&lockstep(folder.path(), &["certify", "--help"]).stdout);
    assert!(help.contains("Usage: lockstep certify [OPTIONS] [URL]"), "{help}");
    assert!(help.contains("lockstep certify merge") || help.contains("  merge  "), "{help}");
}
