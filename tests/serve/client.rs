//! A client that does as it is told: whole requests, and pieces of them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer, its body put together.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
    /// Whether the body came to its end.
    pub(crate) is_whole: bool,
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// The bytes of a request.
pub(crate) fn message(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    exchange(address, &message("GET", path, ""))
}

pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> Answer {
    exchange(address, &message("POST", path, &body.to_string()))
}

/// Sends these bytes and reads the answer.
pub(crate) fn exchange(address: SocketAddr, bytes: &str) -> Answer {
    let mut stream = connect(address);
    stream.write_all(bytes.as_bytes()).expect("the server reads");
    read(&mut stream).expect("the server answers")
}

/// Reads an answer until the server closes the connection.
pub(crate) fn read(stream: &mut TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes)
        && (bytes.is_empty() || error.kind() != io::ErrorKind::ConnectionReset)
    {
        return Err(error);
    }
    let split = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let Some(split) = split else { return Err(io::Error::other("no head")) };
    let head = String::from_utf8_lossy(&bytes[..split]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("no status"))?;
    let mut answer = Answer { status, head, body: String::new(), is_whole: false };
    let rest = &bytes[split + 4..];
    let (body, is_whole) = match answer.header("transfer-encoding") {
        Some("chunked") => unchunk(rest),
        _ => {
            let length = answer.header("content-length").and_then(|n| n.parse().ok());
            (rest.to_vec(), length.is_none_or(|length: usize| length == rest.len()))
        }
    };
    answer.body = String::from_utf8(body).map_err(io::Error::other)?;
    answer.is_whole = is_whole;
    Ok(answer)
}

/// The body of chunks, and whether the last one is there.
fn unchunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(at) = rest.windows(2).position(|window| window == b"\r\n") else {
            return (body, false);
        };
        let size = std::str::from_utf8(&rest[..at]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let Some(size) = size else { return (body, false) };
        rest = &rest[at + 2..];
        if size == 0 {
            return (body, true);
        }
        if rest.len() < size + 2 {
            return (body, false);
        }
        body.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(n, _)| n.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The JSON of an answer that is no error.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.json()
    }

    /// Checks the shape of an error; returns its message.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.body);
        let error = &self.json()["error"];
        assert!(error["type"].is_string(), "{}", self.body);
        assert!(error.get("param").is_some() && error.get("code").is_some(), "{}", self.body);
        error["message"].as_str().expect("a message").to_owned()
    }

    /// Data of the events of a stream, in order.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<String> {
        assert_eq!(self.status, 200, "{}", self.body);
        let events = self.body.split_terminator("\n\n");
        events.map(|event| event.strip_prefix("data: ").expect("data").to_owned()).collect()
    }

    /// The pieces of a stream that came to its end.
    #[track_caller]
    pub(crate) fn pieces(&self) -> Vec<Value> {
        let mut events = self.events();
        assert!(self.is_whole, "{}", self.body);
        assert_eq!(events.pop().as_deref(), Some("[DONE]"), "{}", self.body);
        events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
    }
}
