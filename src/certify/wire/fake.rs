//! A server for tests that sends what it is told to, byte for byte, and remembers what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::super::options::Target;

/// Heads and bodies of requests as they came, one connection after another answered by `answer`, which returns whether
/// the connection stays open.
pub(in crate::certify) struct Fake {
    pub(in crate::certify) url: String,
    seen: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Fake {
    /// Calls `answer` with each request and the number of requests so far.
    pub(in crate::certify) fn start(
        answer: impl Fn(&mut TcpStream, &str, usize) -> bool + Send + Sync + 'static,
    ) -> Fake {
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
        answer: &dyn Fn(&mut TcpStream, &str, usize) -> bool,
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
                seen.push(request.clone());
                seen.len()
            };
            if !answer(&mut stream, &request, number) {
                return;
            }
        }
    }

    pub(in crate::certify) fn target(&self) -> Target {
        Target { url: self.url.clone(), ..Target::default() }
    }

    /// Heads and bodies of all requests.
    pub(in crate::certify) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// Bodies of all requests that had one.
    pub(in crate::certify) fn bodies(&self) -> Vec<Value> {
        let all = self.seen().into_iter();
        all.filter_map(|request| serde_json::from_str(request.lines().last()?).ok()).collect()
    }

    /// Connections so far.
    pub(in crate::certify) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// A server that answers bodies with a status and a document.
    pub(in crate::certify) fn of_documents(
        answer: impl Fn(&Value) -> (u16, Value) + Send + Sync + 'static,
    ) -> Fake {
        Fake::start(move |stream, request, _| {
            let body = request.lines().last().and_then(|line| serde_json::from_str(line).ok());
            let (code, document) = answer(&body.unwrap_or(Value::Null));
            respond(stream, &format!("{code} Status"), "", &document.to_string());
            true
        })
    }

    /// The last request.
    pub(in crate::certify) fn last(&self) -> String {
        self.seen().pop().unwrap()
    }
}

/// An answer of known length.
pub(in crate::certify) fn respond(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).unwrap();
}

/// A stream of chunks; without its end if `end` is false.
pub(in crate::certify) fn stream_out(stream: &mut TcpStream, events: &str, end: bool) {
    let n = events.len();
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let end = if end { "0\r\n\r\n" } else { "" };
    stream.write_all(format!("{head}{n:x}\r\n{events}\r\n{end}").as_bytes()).unwrap();
}
