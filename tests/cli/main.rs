//! The command line as a user meets it: exit codes, one-line errors, and the round trip of a failing case.

mod bos;
mod certify;
mod merge;
mod server;

use std::path::Path;
use std::process::{Command, Output};

fn lockstep(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("CARGO")
        .env_remove("LOCKSTEP_DEVICE")
        .env_remove("OPENAI_BASE_URL")
        .env_remove("OPENAI_API_KEY")
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bad input: exit code 2, one line on stderr, nothing on stdout.
#[test]
fn bad_input_gets_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("empty", "");
    write("truncated.gguf", "GGUF\u{3}");
    write("two.json", r#"{"schema":"lockstep.case/2.0"}"#);
    write("old.json", r#"{"schema":"lockstep.case/0.1"}"#);
    write("none.json", "[1, 2");
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    let bad: &[&[&str]] = &[
        &[],
        &["nonsense"],
        &["fuzz", "--relations", "I9"],
        &["fuzz", "--relations", ""],
        &["fuzz", "--cases", "-5"],
        &["fuzz", "--cases", "0"],
        &["fuzz", "--cases", "many"],
        &["fuzz", "--seconds", "-1"],
        &["fuzz", "--seconds", "nan"],
        &["fuzz", "--jobs", "0"],
        &["fuzz", "--seed", "-1"],
        &["fuzz", "--mode", "sideways"],
        &["fuzz", "--device", "abacus"],
        &["fuzz", "--device", "hash:1"],
        &["fuzz", "--dtype", "f64"],
        &["fuzz", "--model", "no-such-model"],
        &["fuzz", "--model", "truncated.gguf"],
        &["fuzz", "--model", "empty"],
        &["fuzz", "--model", "folder"],
        &["fuzz", "--prompts", "no-such-file"],
        &["fuzz", "--prompts", "empty"],
        &["fuzz", "--json", "no/such/folder/x.json"],
        &["fuzz", "extra"],
        &["replay"],
        &["replay", "no-such-case"],
        &["replay", "empty"],
        &["replay", "two.json"],
        &["replay", "old.json"],
        &["replay", "none.json"],
        &["replay", "folder"],
        &["minimize", "two.json"],
        &["generate"],
        &["generate", ""],
        &["generate", "x", "--max-tokens", "0"],
        &["generate", "x", "--temperature", "-1"],
        &["generate", "x", "--top-p", "0"],
        &["generate", "x", "--max-tokens", "65536"],
        &["certify", "nowhere"],
        &["certify", "ftp://host/v1"],
        &["certify", "http://user:password@host/v1"],
        &["certify", "--concurrency", "1"],
        &["certify", "--concurrency", "100000"],
        &["certify", "--arms", "I1"],
        &["certify", "--max-requests", "5"],
        &["certify", "--max-requests", "-5"],
        &["certify", "--timeout", "0"],
        &["certify", "--model", "no-such-model"],
        &["certify", "--mode", "sideways"],
        &["certify", "--device", "hash"],
        &["certify", "--config", "no-such-file"],
        &["certify", "--config", "none.json"],
        &["certify", "--power", "1"],
        &["certify", "--power", "0,0"],
        &["certify", "--rate", "0.5"],
        &["certify", "http://127.0.0.1:1/v1", "--mode", "batch-dependent"],
        &["certify", "--html", "-"],
        &["certify", "--json", "no/such/folder/x.json"],
    ];
    for arguments in bad {
        let output = lockstep(folder.path(), arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {out}{err}");
        assert_eq!(err.lines().count(), 1, "{arguments:?}: {err}");
        assert!(err.starts_with("lockstep: "), "{arguments:?}: {err}");
        assert!(err.len() < 400, "{arguments:?}: {err}");
        assert!(out.is_empty(), "{arguments:?}: {out}");
    }
}

#[test]
fn an_unknown_variable_of_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        command.args(["fuzz", "--cases", "3"]).current_dir(folder.path()).env(name, "host");
        command.output().unwrap()
    };
    let output = run("LOCKSTEP_DEVICES");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    assert!(text(&output.stderr).contains("LOCKSTEP_DEVICES"));
    assert_eq!(run("LOCKSTEP_DEVICE").status.code(), Some(0));
    // A value that means nothing: here it is "host".
    let output = run("LOCKSTEP_REQUIRE_GPU");
    assert_eq!(output.status.code(), Some(2));
    let err = text(&output.stderr);
    assert_eq!(err.trim_end(), r#"lockstep: LOCKSTEP_REQUIRE_GPU: expected 0 or 1, found "host""#);
}

/// With `--json -` standard output is the document and nothing else, and no file is written.
#[test]
fn a_dash_sends_the_json_to_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let output = lockstep(folder.path(), &["fuzz", "--cases", "3", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["verdict"], "held");
    assert!(text(&output.stderr).contains("held: 3 cases"));
    assert!(!folder.path().join("-").exists());
}

/// Where the folder of cases can't be made, the text of the case is printed, and replays.
#[test]
fn a_case_that_can_not_be_stored_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("target"), "in the way").unwrap();
    let arguments = ["fuzz", "--cases", "20", "--mode", "batch-dependent", "--seed", "1"];
    let output = lockstep(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(1));
    let out = text(&output.stdout);
    let line = out.lines().find(|line| line.starts_with('{')).expect("the case's text");
    std::fs::write(folder.path().join("case.json"), line).unwrap();
    let replay = lockstep(folder.path(), &["replay", "case.json"]);
    assert_eq!(replay.status.code(), Some(1), "{}", text(&replay.stderr));
    assert!(text(&replay.stdout).contains("equals the recorded one"));
}

/// The hash device is named wherever a result is, and its case replays on it.
#[test]
fn the_hash_device_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let output = lockstep(folder.path(), &["fuzz", "--cases", "9", "--device", "hash"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("no arithmetic: state faults only"));
    let arguments = [
        "fuzz",
        "--cases",
        "9",
        "--device",
        "hash",
        "--mode",
        "batch-dependent",
        "--json",
        "r.json",
    ];
    assert_eq!(lockstep(folder.path(), &arguments).status.code(), Some(1));
    let json = std::fs::read(folder.path().join("r.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&json["device"], &json["env"]["device"]), (&"hash".into(), &"hash".into()));
    let command = json["failures"][0]["command"].as_str().unwrap();
    assert!(command.ends_with("--device hash"), "{command}");
    let words: Vec<&str> = command.split_whitespace().collect();
    let replay = lockstep(folder.path(), &words[1..]);
    assert_eq!(replay.status.code(), Some(1));
    assert!(text(&replay.stdout).contains("equals the recorded one"), "{}", text(&replay.stdout));
    // Elsewhere the trajectory is another one, and that is no difference.
    let file = words[2];
    let elsewhere = lockstep(folder.path(), &["replay", file, "--device", "host"]);
    assert!(text(&elsewhere.stdout).contains("not compared: recorded on device hash"));
    let env = Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(["env", "--json"])
        .env("LOCKSTEP_DEVICE", "hash")
        .output()
        .unwrap();
    let env: serde_json::Value = serde_json::from_slice(&env.stdout).unwrap();
    assert_eq!(env["env"]["device"], "hash");
}

/// Output that is lost is said once, and ends with 2 even where all held; a reader that left changes nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_verdict_that_could_not_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(["fuzz", "--cases", "3"])
        .current_dir(folder.path())
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));
}

#[test]
fn help_and_version_are_no_errors() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["--help"][..], &["--version"], &["fuzz", "--help"]] {
        let output = lockstep(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(!output.stdout.is_empty());
    }
}

/// A short campaign holds, writes its JSON, and the number of threads changes no figure but the time.
#[test]
fn a_campaign_holds_and_is_the_same_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let run = |jobs: &str, json: &str| -> serde_json::Value {
        let arguments = ["fuzz", "--cases", "24", "--seed", "7", "--jobs", jobs, "--json", json];
        let output = lockstep(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
        let json = std::fs::read(folder.path().join(json)).unwrap();
        serde_json::from_slice(&json).unwrap()
    };
    let (mut one, mut three) = (run("1", "one.json"), run("3", "three.json"));
    assert_eq!(one["schema"], "lockstep.fuzz/1.2");
    assert_eq!(one["verdict"], "held");
    let relations = one["relations"].as_object().unwrap().len();
    assert_eq!(relations, lockstep::relation::RELATIONS.len());
    for field in ["seconds", "cases_per_second", "command"] {
        assert!(one[field].take() != serde_json::Value::Null, "{field} is absent");
        three[field].take();
    }
    assert_eq!(one, three);
}

#[test]
fn a_campaign_of_three_cases_is_not_vacuous() {
    let folder = tempfile::tempdir().unwrap();
    for seed in ["0", "1", "2", "3", "4", "5", "6", "7"] {
        let output = lockstep(folder.path(), &["fuzz", "--cases", "3", "--seed", seed]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    }
}

/// The positive control: found broken, shrunk to two requests at most, replayed by the printed file, minimal already.
#[test]
fn the_batch_dependent_mode_is_broken_and_its_case_replays() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["fuzz", "--cases", "20", "--mode", "batch-dependent", "--seed", "1", "--json", "r.json"];
    let output = lockstep(folder.path(), &arguments);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    let json = std::fs::read(folder.path().join("r.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["verdict"], "broken");
    let failure = &json["failures"][0];
    assert_eq!(failure["observable"], "logits");
    assert_eq!(failure["minimal"], true);
    assert!(failure["requests"].as_u64().unwrap() <= 2, "{failure}");
    let command = failure["command"].as_str().unwrap();
    assert!(out.contains(&format!("reproduce: {command}")), "{out}");
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(words[0], env!("CARGO_BIN_EXE_lockstep"));

    let replay = lockstep(folder.path(), &words[1..]);
    let out = text(&replay.stdout);
    assert_eq!(replay.status.code(), Some(1), "{out}");
    assert!(out.contains("broken: logits differ"), "{out}");
    assert!(out.contains("equals the recorded one"), "{out}");

    // What failed once comes first from then on, and only in the mode that it failed in.
    let again = lockstep(folder.path(), &arguments);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stdout).contains("stored case still fails: "), "{}", text(&again.stdout));
    let sound = lockstep(folder.path(), &["fuzz", "--cases", "3"]);
    assert_eq!(sound.status.code(), Some(0), "{}", text(&sound.stdout));

    let case = failure["case"].as_str().unwrap();
    let minimize = lockstep(folder.path(), &["minimize", case]);
    assert_eq!(minimize.status.code(), Some(1));
    assert!(text(&minimize.stdout).contains("1-minimal"));
    std::fs::remove_file(folder.path().join(case)).unwrap();
}

/// A case whose hash differs is reported, one whose model is not there is undecided, one that holds is 0.
#[test]
fn replay_tells_held_from_changed_from_missing() {
    let folder = tempfile::tempdir().unwrap();
    let output = lockstep(folder.path(), &["fuzz", "--cases", "9", "--mode", "batch-dependent"]);
    assert_eq!(output.status.code(), Some(1));
    let cases = folder.path().join("target/lockstep/cases");
    let path = std::fs::read_dir(&cases).unwrap().flatten().next().unwrap().path();
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let replay = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = json.clone();
        change(&mut json);
        std::fs::write(folder.path().join("case.json"), json.to_string()).unwrap();
        lockstep(folder.path(), &["replay", "case.json"])
    };
    let as_sound = |json: &mut serde_json::Value| {
        json["world"]["mode"] = "invariant".into();
        json["observed"]["trajectory"].take();
    };
    let held = replay(&as_sound);
    assert_eq!(held.status.code(), Some(0), "{}", text(&held.stdout));
    let changed = replay(&|json| {
        as_sound(json);
        json["observed"]["trajectory"] = "00".into();
    });
    assert_eq!(changed.status.code(), Some(1));
    assert!(text(&changed.stdout).contains("differs from the recorded"));
    let missing = replay(&|json| json["world"]["model"] = "gone.gguf".into());
    assert_eq!(missing.status.code(), Some(3), "{}", text(&missing.stderr));
    let other = replay(&|json| json["world"]["model_digest"] = "00".into());
    assert_eq!(other.status.code(), Some(3), "{}", text(&other.stderr));
    let too_long = replay(&|json| json["workload"]["requests"][0]["max_tokens"] = 400.into());
    assert_eq!(too_long.status.code(), Some(2), "{}", text(&too_long.stdout));
    assert!(text(&too_long.stderr).contains("it can never fit"));
    // One block less than it needs, and exactly what it needs.
    for (pool, code) in [(1, 2), (2, 0)] {
        let fit = replay(&|json| {
            as_sound(json);
            json["world"]["pool_blocks"] = pool.into();
            let block = json["world"]["block_size"].as_u64().unwrap();
            json["workload"]["requests"] = serde_json::json!([
                {"uid": 1, "prompt": [1, 2], "max_tokens": 2 * block - 1, "ignore_eos": true},
                {"uid": 2, "prompt": [3], "max_tokens": 1},
            ]);
            json["schedule"] = serde_json::json!([]);
            json["relation"] = "I1".into();
        });
        assert_eq!(fit.status.code(), Some(code), "{}", text(&fit.stdout));
        let err = text(&fit.stderr);
        let refused = err.contains("request 1 needs 2 blocks, the pool has 1: it can never fit");
        assert_eq!((refused, err.lines().count() == 1), (code == 2, code == 2), "{err}");
    }
    let large = replay(&|json| json["workload"]["requests"][0]["first_sample"] = 70000.into());
    assert_eq!(large.status.code(), Some(2));
    let expected = "first_sample is 70000, at most 65536 is allowed";
    assert!(text(&large.stderr).contains(expected), "{}", text(&large.stderr));
    // One request alone exercises nothing of I1: neither command takes that for a pass.
    let alone = replay(&|json| {
        as_sound(json);
        json["workload"]["requests"] =
            serde_json::json!([{"uid": 1, "prompt": [1, 2], "max_tokens": 1}]);
        json["schedule"] = serde_json::json!([]);
        json["relation"] = "I1".into();
    });
    assert_eq!(alone.status.code(), Some(3), "{}", text(&alone.stdout));
    let minimize = lockstep(folder.path(), &["minimize", "case.json"]);
    assert_eq!(minimize.status.code(), Some(3), "{}", text(&minimize.stdout));
    assert_eq!(text(&minimize.stderr).lines().count(), 1);
    let unknown = replay(&|json| json["relation"] = "I9".into());
    assert_eq!(unknown.status.code(), Some(2));
    // What holds has nothing to minimise.
    replay(&as_sound);
    let minimize = lockstep(folder.path(), &["minimize", "case.json"]);
    assert_eq!(minimize.status.code(), Some(0), "{}", text(&minimize.stdout));
}

#[test]
fn generate_completes_a_text_the_same_way_twice() {
    let folder = tempfile::tempdir().unwrap();
    let run = || lockstep(folder.path(), &["generate", "hello", "--max-tokens", "8", "--ids"]);
    let (first, second) = (run(), run());
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    assert_eq!(first.stdout, second.stdout);
    assert!(!text(&first.stdout).trim().is_empty());
}

#[test]
fn env_prints_the_tuple() {
    let folder = tempfile::tempdir().unwrap();
    let output = lockstep(folder.path(), &["env", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["env"]["matrix_unit"], "{16,25}");
}
