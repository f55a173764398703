//! Reproducers of what was found, run as their readers run them: they fail on a server with the fault, pass on one without it,
//! and say so where nothing can be found out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use lockstep::certify::options::Secret;
use lockstep::certify::repro::{
    self, FIRST_PYTHON_FILE, FIRST_SHELL_FILE, PYTHON_FILE, REQUESTS_FILE, Reproducer, SHELL_FILE,
};
use lockstep::certify::{self, Arm, Options, Silent, Verdict, text};
use tempfile::TempDir;

use crate::run::{small, target, with};
use crate::server::{Cold, Disturbance, Faults, Gauge, How, Server, Usage, When};

const DRIFT: How = How::Drift(1e-3);
const COMPANY: [&str; 2] = [SHELL_FILE, PYTHON_FILE];
const FIRST: [&str; 2] = [FIRST_SHELL_FILE, FIRST_PYTHON_FILE];

/// What is written of a broken server.
fn files(faults: &Faults, options: &Options) -> Reproducer {
    let found = with(faults.clone(), options);
    let certificate = &found.expect(Verdict::Broken).certificate;
    let said = text::report(certificate);
    repro::reproducer(certificate).unwrap_or_else(|why| panic!("{why}: {said}"))
}

fn written(files: &Reproducer) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in &files.files {
        fs::write(folder.path().join(name), text).expect("written");
    }
    folder
}

/// Runs a file of the folder: its exit code, and all that it said.
fn run(folder: &Path, file: &str, variables: &[(&str, &str)]) -> (i32, String) {
    let runner = if file.ends_with(".sh") { "sh" } else { "python3" };
    let mut command = Command::new(runner);
    command.arg(file).current_dir(folder).stdin(Stdio::null());
    let others = ["OPENAI_API_KEY", "OPENAI_BASE_URL", "HEADERS", "http_proxy", "HTTP_PROXY"];
    for name in others {
        command.env_remove(name);
    }
    command.env("TRIES", "20").env("PYTHONDONTWRITEBYTECODE", "1");
    command.envs(variables.iter().copied());
    let output = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    (output.status.code().expect("no signal ended it"), said)
}

fn url(server: &Server) -> String {
    format!("{}/v1", server.url())
}

/// Runs both files against a server that starts with them.
#[track_caller]
fn expect(files: &Reproducer, names: [&str; 2], faults: &Faults, code: i32, words: &str) {
    let folder = written(files);
    for name in names {
        let server = Server::start(faults.clone());
        let (got, said) = run(folder.path(), name, &[("OPENAI_BASE_URL", &url(&server))]);
        let text = files.file(name).unwrap_or_default();
        assert!(got == code && said.contains(words), "{name}: {got}: {said}\n{text}");
    }
}

/// Nothing that is asked twice gets the same answer.
fn unrepeatable() -> Faults {
    Faults::disturbed(When::EachRequest, DRIFT)
}

/// A first answer that differs is shown by prompts that are new each time, and as long as they were.
fn a_first_answer_is_asked_with_new_prompts() {
    let faults = Faults::disturbed(When::FirstOfPrompt, DRIFT);
    let files = files(&faults, &small(&[Arm::First]));
    assert!(files.file(SHELL_FILE).is_none(), "no crowd differed");
    expect(&files, FIRST, &faults, 1, "FAILED");
    expect(&files, FIRST, &Faults::default(), 0, "passed");
    expect(&files, FIRST, &unrepeatable(), 2, "differ already");
    expect_new(&files, &Faults::default(), |body| {
        let ids = body["prompt"].as_array().expect("ids");
        (body["prompt"].to_string(), ids.len())
    });
}

/// Prompts are asked three times each, and no two are one; all are equally long.
fn expect_new(
    files: &Reproducer,
    faults: &Faults,
    prompt: impl Fn(&serde_json::Value) -> (String, usize),
) {
    let folder = written(files);
    for name in FIRST {
        let server = Server::start(faults.clone());
        let address = url(&server);
        let variables = [("OPENAI_BASE_URL", address.as_str()), ("TRIES", "7")];
        assert_eq!(run(folder.path(), name, &variables).0, 0);
        let asked = server.completions();
        // The file for pytest finds out first whether anyone answers.
        let before = usize::from(name.ends_with(".py"));
        let prompts: Vec<(String, usize)> =
            asked[before..].iter().map(|asked| prompt(&asked.body)).collect();
        assert_eq!(prompts.len(), 21, "{name}");
        assert!(prompts.chunks(3).all(|three| three.iter().all(|prompt| *prompt == three[0])));
        let different: BTreeSet<&String> = prompts.iter().map(|(prompt, _)| prompt).collect();
        let lengths: BTreeSet<usize> = prompts.iter().map(|(_, length)| *length).collect();
        assert_eq!((different.len(), lengths.len()), (7, 1), "{name}: {prompts:?}");
    }
}

/// Where nothing keeps a prompt cold, the crowd is the first to bring it, and its answers alone come after.
fn a_crowd_of_new_prompts_comes_before_its_answers_alone() {
    // Of no known kind, so that no field is believed.
    let plain = Faults {
        cold: Cold::Never,
        usage: Usage::WithoutCached,
        gauge: Gauge::Missing,
        ..Faults::default()
    };
    let disturbances = Faults::disturbed(When::InFlight(2), DRIFT).disturbances;
    let faults = Faults { disturbances, ..plain.clone() };
    let files = files(&faults, &small(&[Arm::First, Arm::ConcurrentCold]));
    assert!(files.file(SHELL_FILE).is_some_and(|text| text.contains("request new")));
    expect(&files, COMPANY, &faults, 1, "FAILED");
    expect(&files, COMPANY, &plain, 0, "passed");
    expect(&files, COMPANY, &unrepeatable(), 2, "differ already");
}

/// Chats and texts are made anew as ids are.
fn new_texts_begin_otherwise() {
    let plain = Faults { chat_only: true, ..Faults::default() };
    let disturbances = Faults::disturbed(When::FirstOfPrompt, DRIFT).disturbances;
    let faults = Faults { disturbances, ..plain.clone() };
    let files = files(&faults, &small(&[Arm::First]));
    assert!(files.file(FIRST_SHELL_FILE).is_some_and(|text| text.contains("\"messages\"")));
    expect(&files, FIRST, &faults, 1, "FAILED");
    expect(&files, FIRST, &plain, 0, "passed");
    expect_new(&files, &plain, |body| {
        let text = body["messages"][0]["content"].as_str().expect("a text");
        (text.to_owned(), text.chars().count())
    });
}

/// A prefill of a neighbour is needed, so that its prompt must be new each time.
fn neighbours_are_new_where_they_must_be() {
    let faults = Faults::disturbed(When::PrefillInStep(48), DRIFT);
    let files = files(&faults, &small(&[Arm::ConcurrentMixed]));
    let script = files.file(SHELL_FILE).expect("a crowd differed");
    assert!(script.contains("neighbour-0 new") && script.contains("request same"), "{script}");
    // Steps as long as a program takes to start: else no two of the script's requests meet in time.
    let slow = Faults { step_us: 20_000, ..faults };
    expect(&files, COMPANY, &slow, 1, "from before it");
    expect(&files, COMPANY, &Faults::default(), 0, "passed");
}

/// The answer alone after the crowd tells what a crowd changes from what it leaves behind.
fn what_a_crowd_leaves_behind_is_said_to_be_that() {
    let faults = Faults::disturbed(When::InFlight(2), DRIFT);
    let files = files(&faults, &small(&[Arm::ConcurrentWarm]));
    expect(&files, COMPANY, &faults, 1, "from before it");
    // A neighbour and three alone come before the crowd.
    let changes = Faults::disturbed(When::AfterRequests(4), DRIFT);
    expect(&files, COMPANY, &changes, 1, "left something behind");
    expect(&files, COMPANY, &Faults::default(), 0, "passed");
    expect(&files, COMPANY, &unrepeatable(), 2, "");
}

/// What is too long to be pasted stands in a file beside the scripts, which say so where it is missing.
fn long_requests_stand_in_a_file_of_their_own() {
    let faults = Faults::disturbed(When::InFlight(2), DRIFT);
    let long = vec![17, 257, 64, 1025];
    let options = Options { shrinks: false, prompt_tokens: long, ..small(&[Arm::ConcurrentWarm]) };
    let files = files(&faults, &options);
    for name in COMPANY {
        let text = files.file(name).expect("a crowd differed");
        assert!(text.len() < 14_000 && text.contains(REQUESTS_FILE), "{} bytes", text.len());
    }
    let requests = files.file(REQUESTS_FILE).expect("it is long");
    let requests: serde_json::Value = serde_json::from_str(requests).expect("it is JSON");
    let neighbours = requests["neighbours"].as_array().expect("a list").len();
    assert_eq!(requests["delays_ms"].as_array().map(Vec::len), Some(neighbours + 1));
    expect(&files, COMPANY, &faults, 1, "FAILED");
    expect(&files, COMPANY, &Faults::default(), 0, "passed");
    let folder = written(&files);
    fs::remove_file(folder.path().join(REQUESTS_FILE)).expect("it is there");
    for name in COMPANY {
        let (code, said) = run(folder.path(), name, &[("OPENAI_BASE_URL", "http://127.0.0.1:9")]);
        // Python ends with 1 where it can't even be loaded.
        assert!(code > 0 && said.contains(REQUESTS_FILE), "{name}: {code}: {said}");
    }
}

/// Secrets of headers and of the address are in no file: each file says so, and takes them from who runs it.
fn what_is_not_stored_comes_from_the_environment() {
    let disturbances = vec![Disturbance { when: When::InFlight(2), how: DRIFT, rate: 1.0 }];
    let faults = Faults { disturbances, needs_query: Some("sig=hush-hush"), ..Faults::default() };
    let server = Server::start(faults.clone());
    let whole = format!("{}?sig=hush-hush", url(&server));
    let secret = Secret::of_header("foo-secret").expect("a header can hold it");
    let target = certify::Target {
        url: whole.clone(),
        headers: vec![("X-Foo".into(), secret)],
        ..target(&server)
    };
    let options = small(&[Arm::Prefix, Arm::ConcurrentCold]);
    let certificate = certify::run(&target, &options, &Silent).expect("a certificate");
    assert_eq!(certificate.verdict, Verdict::Broken, "{}", text::report(&certificate));
    let files = repro::reproducer(&certificate).expect("a crowd differed");
    let folder = written(&files);
    for name in COMPANY {
        let text = files.file(name).expect("a crowd differed");
        assert!(text.contains("header X-Foo, whose value is not stored"), "{text}");
        assert!(text.contains("query whose values are not stored"), "{text}");
        assert!(!text.contains("hush-hush") && !text.contains("foo-secret"), "{text}");
        let (code, said) = run(folder.path(), name, &[]);
        assert!(code == 2 && said.contains("set OPENAI_BASE_URL"), "{name}: {code}: {said}");
        let server = Server::start(faults.clone());
        let whole = format!("{}?sig=hush-hush", url(&server));
        let headers = "X-Foo: a \"quoted\\\" b\nX-Bar:1";
        let variables =
            [("OPENAI_BASE_URL", whole.as_str()), ("HEADERS", headers), ("OPENAI_API_KEY", "k")];
        let (code, said) = run(folder.path(), name, &variables);
        assert!(code == 1 && said.contains("FAILED"), "{name}: {code}: {said}");
        let asked = server.completions();
        let of = |name: &str| -> BTreeSet<Option<String>> {
            asked.iter().map(|asked| asked.headers.get(name).cloned()).collect()
        };
        assert_eq!(of("x-foo"), [Some("a \"quoted\\\" b".to_owned())].into(), "{name}");
        assert_eq!(of("x-bar"), [Some("1".to_owned())].into(), "{name}");
        assert_eq!(of("authorization"), [Some("Bearer k".to_owned())].into(), "{name}");
        let salts: BTreeSet<String> =
            asked.iter().map(|asked| asked.body["cache_salt"].to_string()).collect();
        assert_eq!(salts.len(), asked.len(), "a salt is never sent twice: {salts:?}");
    }
}

/// Ignored where a program is missing.
pub(crate) fn trials() -> Vec<Trial> {
    let is_there = |program: &str| {
        let probe = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        probe.is_ok_and(|output| output.status.success())
    };
    let missing: Vec<&str> = ["curl", "python3"].into_iter().filter(|p| !is_there(p)).collect();
    if !missing.is_empty() {
        eprintln!("ignored: reproduce: no {}", missing.join(", "));
    }
    let all: [(&str, fn()); 7] = [
        ("a_first_answer_is_asked_with_new_prompts", a_first_answer_is_asked_with_new_prompts),
        (
            "a_crowd_of_new_prompts_comes_before_its_answers_alone",
            a_crowd_of_new_prompts_comes_before_its_answers_alone,
        ),
        ("new_texts_begin_otherwise", new_texts_begin_otherwise),
        ("neighbours_are_new_where_they_must_be", neighbours_are_new_where_they_must_be),
        (
            "what_a_crowd_leaves_behind_is_said_to_be_that",
            what_a_crowd_leaves_behind_is_said_to_be_that,
        ),
        ("long_requests_stand_in_a_file_of_their_own", long_requests_stand_in_a_file_of_their_own),
        (
            "what_is_not_stored_comes_from_the_environment",
            what_is_not_stored_comes_from_the_environment,
        ),
    ];
    let trial = |(name, test): (&str, fn())| {
        // Programs take their time to start, and may miss each other.
        let test = move || {
            crate::timed(crate::AGAIN, test);
            Ok(())
        };
        Trial::test(format!("reproduce::{name}"), test).with_ignored_flag(!missing.is_empty())
    };
    all.into_iter().map(trial).collect()
}
