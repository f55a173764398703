//! As much of HTTP/1.1 as the proxy's own client speaks.

use std::io::{self, BufRead, Read, Write};
use std::net::TcpStream;

/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Longest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 16 << 20;

/// A request.
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// Names in lower case; those of the connection are not among them.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// The next request; `None` once the client has gone.
pub(super) fn read(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let malformed = || io::Error::other("malformed request");
    let mut head = reader.by_ref().take(HEAD_BYTES_MAX);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = words.next().zip(words.next()).ok_or_else(malformed)?;
    let (mut length, mut headers) = (0, Vec::new());
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Err(malformed());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(malformed)?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().map_err(|_| malformed())?,
            "host" | "connection" | "accept" | "accept-encoding" | "user-agent" => {}
            name => headers.push((name.to_owned(), value.trim().to_owned())),
        }
    }
    if length > BODY_BYTES_MAX {
        return Err(malformed());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { method, path, headers, body }))
}

/// Begins an answer whose body comes in chunks.
pub(super) fn begin(
    stream: &mut TcpStream,
    code: u16,
    fields: &[(&str, String)],
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {code} Status\r\ntransfer-encoding: chunked\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())
}

/// One chunk.
pub(super) fn chunk(stream: &mut TcpStream, piece: &[u8]) -> io::Result<()> {
    // Written at once: a piece of a stream that waits for its end would come late.
    let mut bytes = format!("{:x}\r\n", piece.len()).into_bytes();
    bytes.extend_from_slice(piece);
    bytes.extend_from_slice(b"\r\n");
    stream.write_all(&bytes)
}

/// The end.
pub(super) fn end(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"0\r\n\r\n")
}
