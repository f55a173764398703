//! Just enough of HTTP/1.1, by hand: a server that is to break the protocol must own every byte.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

const HEADER_BYTES_MAX: u64 = 64 << 10;
const BODY_BYTES_MAX: usize = 8 << 20;

/// What becomes of a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum After {
    GoesOn,
    Closes,
    /// The answer has no end: it stays open until the client goes.
    Lingers,
}

pub(crate) struct Incoming {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// The next request of a connection; none where the client closed it.
pub(crate) fn read(input: &mut BufReader<TcpStream>) -> io::Result<Option<Incoming>> {
    let mut head = input.by_ref().take(HEADER_BYTES_MAX);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let (method, path) = (method.to_string(), path.to_string());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        head.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_string());
    }
    let body = match headers.get("content-length").map(|length| length.parse::<usize>()) {
        Some(Ok(length)) if length <= BODY_BYTES_MAX => {
            let mut body = vec![0; length];
            input.read_exact(&mut body)?;
            body
        }
        Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        None if headers.contains_key("transfer-encoding") => read_chunks(input)?,
        None => Vec::new(),
    };
    Ok(Some(Incoming { method, path, headers, body }))
}

fn read_chunks(input: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        input.by_ref().take(64).read_line(&mut line)?;
        let length =
            usize::from_str_radix(line.trim(), 16).map_err(|_| io::ErrorKind::InvalidData)?;
        if body.len() + length > BODY_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let start = body.len();
        body.resize(start + length, 0);
        input.read_exact(&mut body[start..])?;
        input.read_exact(&mut [0; 2])?;
        if length == 0 {
            return Ok(body);
        }
    }
}

/// An answer of known length.
pub(crate) fn respond(
    output: &mut TcpStream,
    status: u16,
    kind: &str,
    extra: &str,
    body: &[u8],
) -> io::Result<()> {
    let reason = match status {
        200 => "OK",
        302 => "Found",
        400 => "Bad Request",
        404 => "Not Found",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    };
    let mut bytes = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: {kind}\r\n{extra}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    output.write_all(&bytes)
}

/// An answer in chunks, each sent at once.
pub(crate) struct Chunks<'a>(&'a mut TcpStream);

impl<'a> Chunks<'a> {
    pub(crate) fn start(output: &'a mut TcpStream, kind: &str, extra: &str) -> io::Result<Self> {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{extra}transfer-encoding: \
             chunked\r\n\r\n"
        );
        output.write_all(head.as_bytes())?;
        Ok(Self(output))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.0.write_all(&chunk)
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        self.0.write_all(b"0\r\n\r\n")
    }
}
