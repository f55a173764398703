//! `lockstep certify` as a user meets it: verdicts of the embedded server, plans, and what is never shown.

use std::process::Command;

use crate::{lockstep, text};

/// Without an address: the embedded server holds, and its batch-dependent mode, which is the positive control, was seen. In that
/// mode it is broken. Each within the budget that is promised.
#[test]
fn certify_judges_the_embedded_server_against_its_control() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, code, verdict) in [("invariant", 0, "held"), ("batch-dependent", 1, "broken")] {
        let output = lockstep(folder.path(), &["certify", "--mode", mode, "--json", "-"]);
        let report = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{report}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
        assert_eq!(json["schema"], "lockstep.certificate/2.0");
        assert_eq!(json["verdict"], verdict);
        assert_eq!(json["controls"]["positive"]["passed"], true, "{report}");
        assert_eq!(json["controls"]["negative"]["differing"], 0, "{report}");
        assert!(json["witness"]["max_in_flight"].as_u64().unwrap() > 1, "{report}");
        assert!(json["requests"].as_u64().unwrap() <= 900, "{report}");
        assert!(json["seconds"].as_f64().unwrap() <= 60.0, "{report}");
        for arm in json["arms"].as_array().unwrap() {
            assert!(arm["of"].as_u64().unwrap() > 0, "{}: {}", arm["arm"], arm["reason"]);
        }
    }
}

#[test]
fn a_dry_run_prints_the_plan_and_its_cost_and_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c.json"), r#"{"prompts": 4, "concurrency": [1, 3]}"#)
        .unwrap();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let url = format!("http://{}/v1", server.local_addr().unwrap());
    let arguments = ["certify", &url, "--dry-run", "--config", "c.json", "--rounds", "1"];
    let output = lockstep(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan = text(&output.stdout);
    assert!(
        plan.contains(
            "4 prompts of 5 to 1025 tokens, 2 answers alone after the first, crowds of 3 in 1 round"
        ),
        "{plan}"
    );
    assert!(plan.contains("\nat most ") && plan.contains("\nbudget: "), "{plan}");
    assert!(server.accept().is_err(), "a connection was made");
}

/// A server that quotes the key back does not get it shown: not in an error, and not in a file.
#[test]
fn the_key_is_never_shown() {
    use std::io::{Read, Write};
    const KEY: &str = "sk-never-shown-0123456789";
    let folder = tempfile::tempdir().unwrap();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", server.local_addr().unwrap());
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut head = [0; 4096];
        let n = stream.read(&mut head).unwrap();
        let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}"#);
        let length = body.len();
        write!(stream, "HTTP/1.1 401 No\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        String::from_utf8_lossy(&head[..n]).into_owned()
    });
    let output = Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(["certify", &url, "--json", "c.json"])
        .current_dir(folder.path())
        .env("OPENAI_API_KEY", KEY)
        .output()
        .unwrap();
    assert!(heard.join().unwrap().to_lowercase().contains(&format!("bearer {KEY}")), "it is sent");
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("401") && said.contains("Incorrect"), "{said}");
    assert!(!said.contains("never-shown"), "{said}");
    // Nor is an empty file left where there is no certificate.
    assert!(!folder.path().join("c.json").exists());
}
