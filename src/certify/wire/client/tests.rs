//! The client against a server that sends what it is told to, byte for byte.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

use serde_json::json;

use super::*;

const PLAIN: &str = r#"{"choices":[{"text":"a","finish_reason":"length"}]}"#;
const CHUNK: &str = "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"length\"}]}\n\n";

/// Heads and bodies of requests as they came, one connection after another answered by `answer`, which returns whether
/// the connection stays open.
struct Fake {
    url: String,
    seen: Arc<Mutex<Vec<String>>>,
    connections: Arc<std::sync::atomic::AtomicUsize>,
}

impl Fake {
    fn start(answer: impl Fn(&mut TcpStream, usize) -> bool + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (seen, connections) = (Arc::default(), Arc::default());
        let fake = Fake { url, seen: Arc::clone(&seen), connections: Arc::clone(&connections) };
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || Fake::serve(stream, &seen, &*answer));
            }
        });
        fake
    }

    fn serve(
        mut stream: TcpStream,
        seen: &Mutex<Vec<String>>,
        answer: &dyn Fn(&mut TcpStream, usize) -> bool,
    ) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut request = String::new();
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = n.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
                request.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            request.push_str(&String::from_utf8(body).unwrap());
            let number = {
                let mut seen = seen.lock().unwrap();
                seen.push(request);
                seen.len()
            };
            if !answer(&mut stream, number) {
                return;
            }
        }
    }

    fn target(&self) -> Target {
        Target { url: self.url.clone(), ..Target::default() }
    }

    fn client(&self) -> Client {
        Client::new(&self.target(), Duration::from_secs(5)).unwrap()
    }

    fn last(&self) -> String {
        self.seen.lock().unwrap().last().cloned().unwrap()
    }
}

fn respond(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).unwrap();
}

/// A stream of chunks; without its end if `end` is false.
fn stream_out(stream: &mut TcpStream, events: &str, end: bool) {
    let n = events.len();
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let end = if end { "0\r\n\r\n" } else { "" };
    stream.write_all(format!("{head}{n:x}\r\n{events}\r\n{end}").as_bytes()).unwrap();
}

fn ask(client: &Client) -> Result<Exchange, WireError> {
    client.complete("completions", &json!({}), &Terms::default())
}

/// Later requests of the same client have connections of their own, and do not wait at all.
#[test]
fn a_stream_is_over_at_its_marker_though_the_connection_stays_open() {
    let server = Fake::start(|stream, _| {
        stream_out(stream, &format!("{CHUNK}data: [DONE]\n\n"), false);
        std::thread::sleep(Duration::from_secs(4));
        false
    });
    let (client, started) = (server.client(), Instant::now());
    for _ in 0..3 {
        assert_eq!(ask(&client).unwrap().answer.text, "a");
    }
    // Known of all connections, not only of this one.
    assert_eq!(ask(&client.another(Duration::from_secs(5))).unwrap().answer.text, "a");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(server.connections.load(Ordering::SeqCst), 4);
}

#[test]
fn a_connection_that_ends_its_stream_is_used_again() {
    let server = Fake::start(|stream, _| {
        stream_out(stream, &format!("{CHUNK}data: [DONE]\n\n"), true);
        true
    });
    let client = server.client();
    for _ in 0..5 {
        ask(&client).unwrap();
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
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
        let server = Fake::start(move |stream, _| {
            stream_out(stream, &sent, true);
            true
        });
        let error = ask(&server.client()).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(error.err().as_deref(), expected, "{events}");
    }
}

#[test]
fn a_stream_that_is_cut_off_is_an_error_of_the_connection() {
    let server = Fake::start(|stream, _| {
        stream_out(stream, CHUNK, false);
        false
    });
    assert!(matches!(ask(&server.client()), Err(WireError::Transport(_))));
}

#[test]
fn headers_go_with_every_request_and_are_never_said() {
    let server = Fake::start(|stream, _| {
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
    for (error, asked) in errors.iter().zip(server.seen.lock().unwrap().iter()) {
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
    let server = Fake::start(|stream, _| {
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
        let server = Fake::start(move |stream, _| {
            respond(stream, &format!("{code} Busy"), "retry-after: 7\r\n", "{}");
            true
        });
        let error = ask(&server.client()).unwrap_err();
        let retry_after = Some(Duration::from_secs(7));
        assert_eq!(error, WireError::Busy { code, retry_after });
        assert_eq!(error.to_string(), format!("refused for load ({code})"));
    }
}

#[test]
fn marks_are_headers_and_the_fingerprint() {
    let server = Fake::start(|stream, number| {
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
