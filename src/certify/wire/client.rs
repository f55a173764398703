//! One connection's worth of client. Each thread has its own, so that requests meant to meet never share a connection.

use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::http::{HeaderName, Response};

use super::super::error::CertifyError;
use super::super::options::{Secret, Target};
use super::address::Address;
use super::agent::Agent;
use super::answer::Answer;
use super::assembly::{self, Assembly};
use super::error::WireError;
use super::hidden::Hidden;
use super::request::Terms;
use super::{marks, read};

/// Most chunks of a stream.
const CHUNKS_MAX: usize = 200_000;
/// Most characters of a server's words that are kept.
const MESSAGE_CHARACTERS_MAX: usize = 200;
/// How long the end of a stream's connection is waited for once its marker came.
const LINGER_MAX: Duration = Duration::from_millis(250);
/// Headers that belong to the connection: another value would break it.
const RESERVED: [&str; 5] =
    ["accept-encoding", "connection", "content-length", "host", "transfer-encoding"];

/// Where to send, and how long to wait.
#[derive(Clone)]
pub(crate) struct Client {
    agent: Agent,
    to: Arc<Destination>,
    /// Whether connections stay open after a stream's end marker. Found out once for all.
    lingers: Arc<AtomicBool>,
    /// Where the metrics are, if not beside the rest.
    metrics: Option<(Address, Agent)>,
}

/// What is sent with each request.
struct Destination {
    address: Address,
    key: Option<Secret>,
    headers: Vec<(HeaderName, Secret)>,
    hidden: Hidden,
}

/// An answer, and when its parts came.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) answer: Answer,
    pub(crate) sent: Instant,
    /// When each chunk with something of the answer came; of a plain answer, none.
    pub(crate) arrivals: Vec<Instant>,
    pub(crate) done: Instant,
}

impl Exchange {
    /// How long it took.
    pub(crate) fn duration(&self) -> Duration {
        self.done - self.sent
    }
}

impl Client {
    /// A client with a connection of its own.
    pub(crate) fn new(target: &Target, timeout: Duration) -> Result<Client, CertifyError> {
        let address = Address::parse(&target.url)?;
        let metrics = target.metrics_url.as_deref().map(|url| {
            let metrics = Address::parse(url)?;
            let agent = Agent::new(&metrics, timeout)?;
            Ok::<_, CertifyError>((metrics, agent))
        });
        let headers = target.headers.iter().map(|(name, value)| Ok((header(name)?, value.clone())));
        Ok(Client {
            agent: Agent::new(&address, timeout)?,
            to: Arc::new(Destination {
                address,
                key: target.key.clone(),
                headers: headers.collect::<Result<_, CertifyError>>()?,
                hidden: Hidden::of(target),
            }),
            lingers: Arc::default(),
            metrics: metrics.transpose()?,
        })
    }

    /// The same, with a connection of its own.
    pub(crate) fn another(&self, timeout: Duration) -> Client {
        let metrics = self.metrics.as_ref();
        Client {
            agent: self.agent.another(timeout),
            metrics: metrics.map(|(address, agent)| (address.clone(), agent.another(timeout))),
            ..self.clone()
        }
    }

    /// Where it sends to.
    pub(crate) fn address(&self) -> &Address {
        &self.to.address
    }

    /// Body of a GET below the address, or below its root, and what the server calls itself.
    pub(crate) fn get(
        &self,
        place: Place,
        path: &str,
    ) -> Result<(String, Option<String>), WireError> {
        let url = self.url(place, path);
        let response = self.agent.send(|agent| self.signed(agent.get(&url)).call());
        let response = response.map_err(|e| self.failed(&e))?;
        let server = response.headers().get("server").and_then(|v| v.to_str().ok());
        let server = server.map(|name| name.chars().take(80).collect());
        let response = self.accepted(response)?;
        Ok((read::text(response.into_body().into_reader())?, server))
    }

    /// The server's metrics. Elsewhere than at the server, they are asked for without a key.
    pub(crate) fn metrics(&self) -> Result<String, WireError> {
        let Some((address, agent)) = &self.metrics else {
            return self.get(Place::Root, "metrics").map(|(text, _)| text);
        };
        let url = address.whole();
        let is_beside = address.is_beside(&self.to.address);
        let response = agent.send(|agent| match is_beside {
            true => self.signed(agent.get(&url)).call(),
            false => agent.get(&url).call(),
        });
        let response = self.accepted(response.map_err(|e| self.failed(&e))?)?;
        read::text(response.into_body().into_reader())
    }

    /// Body of a POST of JSON.
    pub(crate) fn post(&self, place: Place, path: &str, body: &Value) -> Result<String, WireError> {
        let response = self.accepted(self.send(place, path, body)?)?;
        read::text(response.into_body().into_reader())
    }

    /// Asks for a completion, plain or streamed as its body says.
    pub(crate) fn complete(
        &self,
        path: &str,
        body: &Value,
        terms: &Terms,
    ) -> Result<Exchange, WireError> {
        let sent = Instant::now();
        let response = self.accepted(self.send(Place::Base, path, body)?)?;
        let marks = self.marks(&response);
        let kind = response.headers().get("content-type").and_then(|v| v.to_str().ok());
        let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
        let reader = response.into_body().into_with_config().limit(read::BODY_BYTES_MAX).reader();
        let mut assembly = Assembly::default();
        let mut arrivals = Vec::new();
        let done;
        if is_stream {
            let mut reader = BufReader::new(reader);
            let ended = self.join(&mut reader, &mut assembly, &mut arrivals)?;
            done = Instant::now();
            if ended == End::Marker {
                self.let_go(reader);
            }
        } else {
            assembly.absorb(&read::text(reader)?).map_err(|e| self.without_secrets(e))?;
            done = Instant::now();
        }
        let mut answer = assembly.finish(terms).map_err(|e| self.without_secrets(e))?;
        answer.marks.extend(marks);
        Ok(Exchange { answer, sent, arrivals, done })
    }

    /// Asks for plain completions of `n` prompts in one request.
    pub(crate) fn complete_many(
        &self,
        path: &str,
        body: &Value,
        n: usize,
        terms: &Terms,
    ) -> Result<Vec<Answer>, WireError> {
        let response = self.accepted(self.send(Place::Base, path, body)?)?;
        let marks = self.marks(&response);
        let text = read::text(response.into_body().into_reader())?;
        let answers = assembly::many(&text, terms, n).map_err(|e| self.without_secrets(e));
        answers.map(|mut answers| {
            answers.iter_mut().for_each(|answer| answer.marks.extend(marks.clone()));
            answers
        })
    }

    fn marks(&self, response: &Response<ureq::Body>) -> std::collections::BTreeMap<String, String> {
        let shown = marks::of(response.headers()).into_iter();
        shown.map(|(name, value)| (name, self.to.hidden.text(&value))).collect()
    }

    fn join(
        &self,
        reader: &mut impl BufRead,
        assembly: &mut Assembly,
        arrivals: &mut Vec<Instant>,
    ) -> Result<End, WireError> {
        for _ in 0..CHUNKS_MAX {
            match read::event(reader)? {
                Some(data) if data.trim() == "[DONE]" => return Ok(End::Marker),
                Some(data) if data.trim().is_empty() => {}
                Some(data) => {
                    if assembly.absorb(&data).map_err(|e| self.without_secrets(e))? {
                        arrivals.push(Instant::now());
                    }
                }
                // Whether the answer ended is said by its reason.
                None if assembly.is_begun() => return Ok(End::Closed),
                None => return Err(WireError::Malformed("a stream without its end".into())),
            }
        }
        Err(WireError::Malformed(format!("a stream of more than {CHUNKS_MAX} chunks")))
    }

    /// Reads on behind the marker, so that the connection can be used again. Some servers keep it open: then it is left, and
    /// so are those of all later streams at once.
    fn let_go(&self, mut rest: impl Read + Send + 'static) {
        if self.lingers.load(Ordering::Relaxed) {
            return;
        }
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            // What comes there is of no use, and an error is an end too.
            let _ = std::io::copy(&mut rest, &mut std::io::sink());
            drop(rest);
            let _ = ended.send(());
        });
        if end.recv_timeout(LINGER_MAX).is_err() {
            self.lingers.store(true, Ordering::Relaxed);
        }
    }

    fn send(
        &self,
        place: Place,
        path: &str,
        body: &Value,
    ) -> Result<Response<ureq::Body>, WireError> {
        let url = self.url(place, path);
        let body = body.to_string();
        let sends_type = self.to.headers.iter().any(|(name, _)| name == "content-type");
        let response = self.agent.send(|agent| {
            let request = self.signed(agent.post(&url));
            let request = match sends_type {
                true => request,
                false => request.header("content-type", "application/json"),
            };
            request.send(body.as_str())
        });
        response.map_err(|e| self.failed(&e))
    }

    /// The request with the key and the headers that were asked for; the latter go first.
    fn signed<Any>(&self, request: ureq::RequestBuilder<Any>) -> ureq::RequestBuilder<Any> {
        let Destination { key, headers, .. } = &*self.to;
        let key = key.as_ref().filter(|_| headers.iter().all(|(name, _)| name != "authorization"));
        let request = match key {
            Some(key) => request.header("authorization", format!("Bearer {}", key.expose())),
            None => request,
        };
        headers.iter().fold(request, |request, (name, value)| request.header(name, value.expose()))
    }

    fn url(&self, place: Place, path: &str) -> String {
        match place {
            Place::Base => self.to.address.below(path),
            Place::Root => self.to.address.below_root(path),
        }
    }

    /// The response if its status is 200; else the status and the server's words.
    fn accepted(&self, response: Response<ureq::Body>) -> Result<Response<ureq::Body>, WireError> {
        let code = response.status().as_u16();
        if code == 200 {
            return Ok(response);
        }
        if WireError::is_busy(code) {
            let after = response.headers().get("retry-after").and_then(|v| v.to_str().ok());
            let seconds: Option<u64> = after.and_then(|text| text.trim().parse().ok());
            // Read, so that the connection can be used again.
            let _ = read::text(response.into_body().into_reader());
            return Err(WireError::Busy { code, retry_after: seconds.map(Duration::from_secs) });
        }
        let text = read::text(response.into_body().into_reader()).unwrap_or_default();
        Err(self.without_secrets(WireError::Status { code, message: message(&text) }))
    }

    fn failed(&self, error: &ureq::Error) -> WireError {
        match error {
            ureq::Error::Timeout(_) => WireError::Timeout,
            other => self.without_secrets(WireError::Transport(other.to_string())),
        }
    }

    /// A server may quote a secret back. Cut only then, so that no part of one is left.
    fn without_secrets(&self, error: WireError) -> WireError {
        let hide = |text: String| {
            let text = self.to.hidden.text(&text);
            text.chars().take(MESSAGE_CHARACTERS_MAX).collect()
        };
        match error {
            WireError::Status { code, message } => {
                WireError::Status { code, message: hide(message) }
            }
            WireError::Transport(why) => WireError::Transport(hide(why)),
            WireError::Malformed(why) => WireError::Malformed(hide(why)),
            WireError::Ended(how) => WireError::Ended(hide(how)),
            other => other,
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Client").field(&self.to.address).finish()
    }
}

/// A name of a header that may be sent.
fn header(name: &str) -> Result<HeaderName, CertifyError> {
    let bad = |why| CertifyError::BadInput(format!("header {name:?}: {why}"));
    let parsed: HeaderName = name.parse().map_err(|_| bad("not a name of a header"))?;
    match RESERVED.contains(&parsed.as_str()) {
        true => Err(bad("belongs to the connection")),
        false => Ok(parsed),
    }
}

/// The server's words in one line: which field it is about, if it says so apart, and why.
fn message(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(&value);
    let said = error.get("message").or(error.get("detail")).or(error.get("msg")).unwrap_or(error);
    let said = match said {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        // Lists of places and reasons, as FastAPI's.
        other => other.to_string(),
    };
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    match error.get("param").and_then(Value::as_str) {
        Some(param) if !said.contains(param) => format!("{param}: {said}"),
        _ => said,
    }
}

/// How a stream ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// By its marker.
    Marker,
    /// By the end of the body.
    Closed,
}

/// Below which address a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The address that was given.
    Base,
    /// The same without `/v1`.
    Root,
}

#[cfg(test)]
mod tests {
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
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
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
            let why =
                r#"{"error":{"message":"no Bearer header-secret sk-key-secret ?sig=signature"}}"#;
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
            assert!(
                !asked.contains("sk-key-secret") && asked.contains("?sig=signature"),
                "{asked}"
            );
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
        let marks: Vec<(&str, &str)> =
            marks.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            marks,
            [("server", "s"), ("system_fingerprint", "fp"), ("x-served-by", "(key)")]
        );
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
}
