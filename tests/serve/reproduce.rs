//! Reproducers that the certifier writes: they fail on the server with the fault, and pass on the one without.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};
use lockstep::certify::repro::{
    FIRST_PYTHON_FILE, FIRST_SHELL_FILE, PYTHON_FILE, Reproducer, SHELL_FILE, reproducer,
};
use lockstep::certify::{self, Arm, Certificate, Silent, Target, Verdict, html, text};
use lockstep::contract::Mode;
use lockstep::serve::{Options, Running, Server};
use serde_json::json;
use tempfile::TempDir;

use crate::{fixture, python};

/// Of the batch-dependent mode, as it was found there.
fn certificate() -> &'static Certificate {
    static CERTIFICATE: OnceLock<Certificate> = OnceLock::new();
    CERTIFICATE.get_or_init(|| {
        let faulty = serve(Mode::batch_dependent());
        let url = format!("{}/v1", faulty.url());
        let options = certify::Options {
            arms: vec![Arm::First, Arm::ConcurrentWarm],
            concurrency: vec![4],
            prompts: 4,
            rounds: Some(1),
            ..certify::Options::default()
        };
        let target = Target { url, ..Target::default() };
        let certificate = certify::run(&target, &options, &Silent).expect("a certificate");
        assert_eq!(certificate.verdict, Verdict::Broken, "{}", text::report(&certificate));
        faulty.shutdown().expect("it was told to");
        certificate
    })
}

fn serve(mode: Mode) -> Running {
    Server::start(fixture(mode), Options::default()).expect("a server")
}

fn written(files: &Reproducer) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in &files.files {
        fs::write(folder.path().join(name), text).expect("written");
    }
    folder
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder).stdin(Stdio::null());
    for variable in
        ["OPENAI_API_KEY", "OPENAI_BASE_URL", "HEADERS", "TRIES", "http_proxy", "HTTP_PROXY"]
    {
        command.env_remove(variable);
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", python::packages("pytest"));
    command
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}: {}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Runs one of the files against the server with the fault, the one without, and none.
fn judge(words: &[&str], away: i32) -> Result<(), Failed> {
    let folder = written(&reproducer(certificate())?);
    for (mode, expected) in
        [(Some(Mode::batch_dependent()), 1), (Some(Mode::Invariant), 0), (None, away)]
    {
        let running = mode.map(serve);
        let is_served = running.is_some();
        let url = running.as_ref().map_or("http://127.0.0.1:9".into(), Running::url);
        let url = format!("{url}/v1");
        let output = command(folder.path(), words).env("OPENAI_BASE_URL", url).output()?;
        if let Some(running) = running {
            running.shutdown().expect("it was told to");
        }
        let said = said(&output);
        if output.status.code() != Some(expected) {
            return Err(format!("expected {expected}: {said}").into());
        }
        // No answer is an error, not a difference that was found: pytest has one code for both.
        let found = said.contains("FAILED");
        if found != (expected == 1 && is_served) {
            return Err(said.into());
        }
    }
    Ok(())
}

fn shell() -> Result<(), Failed> {
    judge(&["sh", SHELL_FILE], 2)?;
    judge(&["sh", FIRST_SHELL_FILE], 2)
}

fn python_alone() -> Result<(), Failed> {
    judge(&["python3", PYTHON_FILE], 2)?;
    judge(&["python3", FIRST_PYTHON_FILE], 2)
}

fn pytest() -> Result<(), Failed> {
    for file in [PYTHON_FILE, FIRST_PYTHON_FILE] {
        judge(&["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", file], 1)?;
    }
    Ok(())
}

/// Whatever a prompt, a model or an address holds, it is sent as it is and runs nothing; the key is in no argument and no file.
fn quoting() -> Result<(), Failed> {
    let odd = "it's \"$(touch run)\" `touch run` \\ \\\" \"\"\" ''' %s {}\nLOCKSTEP\n#@ header\r\u{2028}\u{1f600}\t{{ 1 }} </pre>";
    let mut certificate = certificate().clone();
    certificate.server.url = "http://127.0.0.1:9/it's$(touch run)\"".into();
    certificate.server.model = odd.into();
    let divergence = certificate.divergences.iter_mut().find(|d| d.sent > 1 && d.shrunk.is_some());
    let shrunk = divergence.and_then(|d| d.shrunk.as_mut()).ok_or("nothing was shrunk")?;
    shrunk.request.body["prompt"] = json!(odd);
    shrunk.request.body["cache_salt"] = json!("lockstep-0");
    let body = shrunk.request.body.clone();
    let folder = written(&reproducer(&certificate)?);
    let path = folder.path();
    // In place of curl: keeps its arguments and the first body.
    let curl = path.join("curl");
    fs::write(
        &curl,
        "#!/bin/sh\necho \"$@\" >> \"$SEEN/args\"\ncp \"$DIR\"/*/request.json \"$DIR\"/*/curlrc \"$SEEN/\"\nexit 22\n",
    )?;
    fs::set_permissions(&curl, fs::Permissions::from_mode(0o755))?;
    let temporary = path.join("temporary");
    fs::create_dir(&temporary)?;
    let search = format!("{}:{}", path.display(), std::env::var("PATH")?);
    let output = command(path, &["sh", SHELL_FILE])
        .env("PATH", search)
        .env("TMPDIR", &temporary)
        .env("DIR", &temporary)
        .env("SEEN", path)
        .env("OPENAI_API_KEY", "sk-never-shown")
        .output()?;
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let sent: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path.join("request.json"))?)?;
    assert_eq!(sent, body);
    let arguments = fs::read_to_string(path.join("args"))?;
    let config = fs::read_to_string(path.join("curlrc"))?;
    assert!(
        config.contains("url = \"http://127.0.0.1:9/it's$(touch run)\\\"/completions\""),
        "{config}"
    );
    assert!(config.contains("Bearer sk-never-shown"), "{config}");
    assert!(!arguments.contains("sk-never") && !said(&output).contains("sk-never"));
    assert_eq!(fs::read_dir(&temporary)?.count(), 0, "nothing is left");
    let dump = format!(
        "import json, {} as t; print(json.dumps([t.URL, t.REQUEST]))",
        PYTHON_FILE.trim_end_matches(".py")
    );
    let output = command(path, &["python3", "-c", &dump]).output();
    // Without Python there is no file of Python's to be run.
    if let Ok(output) = output {
        let read: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|e| format!("{e}: {}", said(&output)))?;
        assert_eq!(read, json!([certificate.server.url, body]));
    }
    assert!(!path.join("run").exists(), "a prompt ran as a command");
    let page = html::page(&certificate);
    assert!(!page.contains("</pre>\nLOCKSTEP") && page.contains("&lt;&#x2f;pre&gt;"), "{page}");
    Ok(())
}

/// A trial that is ignored where its program is missing.
fn trial(name: &str, is_list: bool, needs: &[&str], test: fn() -> Result<(), Failed>) -> Trial {
    let name = format!("reproduce::{name}");
    let probe = command(Path::new("."), needs).output();
    let is_there = probe.is_ok_and(|output| output.status.success());
    if !is_there && !is_list {
        eprintln!("ignored: {name}: `{}` fails", needs.join(" "));
    }
    let reason = format!("`{}` fails", needs.join(" "));
    Trial::test(name, move || if is_there { test() } else { Err(reason.into()) })
        .with_ignored_flag(!is_there)
}

pub(crate) fn trials(is_list: bool) -> [Trial; 4] {
    [
        trial(
            "curl_fails_where_it_must_and_passes_elsewhere",
            is_list,
            &["curl", "--version"],
            shell,
        ),
        trial(
            "python_fails_where_it_must_and_passes_elsewhere",
            is_list,
            &["python3", "--version"],
            python_alone,
        ),
        trial(
            "pytest_fails_where_it_must_and_passes_elsewhere",
            is_list,
            &["python3", "-m", "pytest", "--version"],
            pytest,
        ),
        trial(
            "what_is_sent_is_quoted_and_the_key_is_nowhere",
            is_list,
            &["sh", "-c", "true"],
            quoting,
        ),
    ]
}
