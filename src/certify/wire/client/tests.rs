//! The client against a server that sends what it is told to, byte for byte.

use serde_json::json;

use super::super::fake::{Fake, respond, stream_out};
use super::*;

const PLAIN: &str = r#"{"choices":[{"text":"a","finish_reason":"length"}]}"#;
const CHUNK: &str = "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"length\"}]}\n\n";

fn ask(client: &Client) -> Result<Exchange, WireError> {
    client.complete("completions", &json!({}), &Terms::default())
}

fn client(server: &Fake) -> Client {
    Client::new(&server.target(), Duration::from_secs(5)).unwrap()
}

/// One wait for its end, 250 ms, is made; later requests have connections of their own, and do not wait at all.
#[test]
fn a_stream_is_over_at_its_marker_though_the_connection_stays_open() {
    let server = Fake::start(|stream, _, _| {
        stream_out(stream, &format!("{CHUNK}data: [DONE]\n\n"), false);
        std::thread::sleep(Duration::from_secs(4));
        false
    });
    let (client, started) = (client(&server), Instant::now());
    for _ in 0..3 {
        assert_eq!(ask(&client).unwrap().answer.text, "a");
    }
    // Known of all connections, not only of this one.
    assert_eq!(ask(&client.another(Duration::from_secs(5))).unwrap().answer.text, "a");
    assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
    assert_eq!(server.connections(), 4);
}

#[test]
fn a_connection_that_ends_its_stream_is_used_again() {
    let server = Fake::start(|stream, _, _| {
        stream_out(stream, &format!("{CHUNK}data: [DONE]\n\n"), true);
        true
    });
    let client = client(&server);
    for _ in 0..5 {
        ask(&client).unwrap();
    }
    assert_eq!(server.connections(), 1);
}

/// By a reason alone, by a marker alone, by neither, and by nothing at all.
#[test]
fn a_stream_says_how_its_answer_ended_or_is_none() {
    let bare = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
    let abort = CHUNK.replace("length", "abort");
    let cases = [
        (CHUNK.to_owned(), None),
        (format!("{bare}data: [DONE]\n\n"), Some("ended without a reason")),
        (bare.to_owned(), Some("ended without a reason")),
        (format!("{abort}data: [DONE]\n\n"), Some("ended by \"abort\"")),
        (bare.replace("\"}", "\",\"finish_reason\":\"\"}"), Some("ended with an empty reason")),
        (String::new(), Some("answer that can't be read: a stream without its end")),
        ("data: [DONE]\n\n".to_owned(), Some("answer that can't be read: no choices")),
    ];
    for (events, expected) in cases {
        let sent = events.clone();
        let server = Fake::start(move |stream, _, _| {
            stream_out(stream, &sent, true);
            true
        });
        let error = ask(&client(&server)).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(error.err().as_deref(), expected, "{events}");
    }
}

#[test]
fn a_stream_that_is_cut_off_is_an_error_of_the_connection() {
    let server = Fake::start(|stream, _, _| {
        stream_out(stream, CHUNK, false);
        false
    });
    assert!(matches!(ask(&client(&server)), Err(WireError::Transport(_))));
}

#[test]
fn headers_go_with_every_request_and_are_never_said() {
    let server = Fake::start(|stream, _, _| {
        let why = r#"{"error":{"message":"no Bearer header-secret sk-key-secret ?sig=signature"}}"#;
        respond(stream, "401 No", "", why);
        true
    });
    let target = Target {
        url: format!("{}?sig=signature", server.url),
        key: Secret::new("sk-key-secret"),
        headers: vec![
            ("X-Team".into(), Secret::of_header("a team").unwrap()),
            ("Authorization".into(), Secret::of_header("Bearer header-secret").unwrap()),
        ],
        ..Target::default()
    };
    let client = Client::new(&target, Duration::from_secs(5)).unwrap();
    let other = client.another(Duration::from_secs(5));
    let errors = [
        ask(&client).unwrap_err(),
        other.get(Place::Root, "models").unwrap_err(),
        other.post(Place::Root, "tokenize", &json!({})).unwrap_err(),
        client.complete_many("completions", &json!({}), 1, &Terms::default()).unwrap_err(),
        client.metrics().unwrap_err(),
    ];
    for (error, asked) in errors.iter().zip(server.seen().iter()) {
        assert_eq!(error.to_string(), "status 401: no (header) (key) ?sig=(hidden)");
        let asked_lower = asked.to_ascii_lowercase();
        assert!(asked_lower.contains("x-team: a team"), "{asked}");
        // One value only: the header goes before the key.
        assert!(asked_lower.contains("authorization: bearer header-secret"), "{asked}");
        assert!(!asked.contains("sk-key-secret") && asked.contains("?sig=signature"), "{asked}");
    }
    let said = format!("{target:?} {client:?}");
    assert!(!said.contains("secret") && !said.contains("signature"), "{said}");
}

#[test]
fn names_that_are_no_headers_are_refused() {
    for name in ["", "a b", "x\n", "é", "Content-Length", "host", "Transfer-Encoding"] {
        let headers = vec![(name.to_owned(), Secret::new("value").unwrap())];
        let target = Target { url: "http://h/v1".into(), headers, ..Target::default() };
        let error = Client::new(&target, Duration::from_secs(1)).unwrap_err();
        assert!(matches!(error, CertifyError::BadInput(_)), "{name:?}: {error}");
    }
}

#[test]
fn metrics_elsewhere_are_asked_for_without_the_key() {
    let server = Fake::start(|stream, _, _| {
        respond(stream, "200 OK", "", "metrics 1\n");
        true
    });
    let elsewhere = server.url.replace("127.0.0.1", "127.0.0.2").replace("/v1", "/m?x=1");
    for (url, metrics, has_key, path) in [
        (server.url.clone(), None, true, "GET /metrics "),
        (server.url.clone(), Some(server.url.replace("/v1", "/m")), true, "GET /m "),
        (elsewhere, Some(server.url.replace("/v1", "/m?y=2")), false, "GET /m?y=2 "),
    ] {
        let key = Secret::new("sk-key-secret");
        let target = Target { url, key, metrics_url: metrics, ..Target::default() };
        let client = Client::new(&target, Duration::from_secs(5)).unwrap();
        assert_eq!(client.another(Duration::from_secs(5)).metrics().unwrap(), "metrics 1\n");
        let asked = server.last();
        assert_eq!(
            (asked.contains("sk-key-secret"), asked.contains(path)),
            (has_key, true),
            "{asked}"
        );
    }
}

#[test]
fn a_server_with_too_much_to_do_is_busy() {
    for code in [429, 503, 529] {
        let server = Fake::start(move |stream, _, _| {
            respond(stream, &format!("{code} Busy"), "retry-after: 7\r\n", "{}");
            true
        });
        let error = ask(&client(&server)).unwrap_err();
        let retry_after = Some(Duration::from_secs(7));
        assert_eq!(error, WireError::Busy { code, retry_after });
        assert_eq!(error.to_string(), format!("refused for load ({code})"));
    }
}

#[test]
fn marks_are_headers_and_the_fingerprint() {
    let server = Fake::start(|stream, _, number| {
        let headers =
            format!("server: s\r\nx-served-by: sk-key-secret\r\nx-request-id: {number}\r\n");
        let body = PLAIN.replacen('{', r#"{"system_fingerprint":"fp","#, 1);
        respond(stream, "200 OK", &headers, &body);
        true
    });
    let target = Target { key: Secret::new("sk-key-secret"), ..server.target() };
    let client = Client::new(&target, Duration::from_secs(5)).unwrap();
    let marks = ask(&client).unwrap().answer.marks;
    let marks: Vec<(&str, &str)> = marks.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(marks, [("server", "s"), ("system_fingerprint", "fp"), ("x-served-by", "(key)")]);
}

#[test]
fn a_refusal_names_its_field_in_one_line() {
    for (body, expected) in [
        (r#"{"error":{"message":"no","param":"top_p"}}"#, "top_p: no"),
        (r#"{"error":{"message":"no top_p","param":"top_p"}}"#, "no top_p"),
        (r#"{"error":"no\n  more"}"#, "no more"),
        (r#"{"error":null,"message":"no"}"#, "no"),
        (r#"{"detail":[{"loc":["body","n"]}]}"#, r#"[{"loc":["body","n"]}]"#),
        ("<html>", ""),
        ("", ""),
    ] {
        assert_eq!(message(body), expected, "{body}");
    }
}
