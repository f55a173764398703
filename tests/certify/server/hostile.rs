//! Answers that are no answers: what a certifier must survive.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::http::{self, After, Chunks};
use super::kinds::Hostile;

/// More than any client should read for one answer.
const HUGE_BYTES: usize = 256 << 20;
const BLOCK_BYTES: usize = 1 << 20;
/// Deeper than a recursive reader's stack is likely to bear.
const DEPTH: usize = 200_000;

/// Answers, and says whether the connection goes on.
pub(crate) fn answer(
    hostile: Hostile,
    output: &mut TcpStream,
    stopped: &AtomicBool,
) -> io::Result<After> {
    let json = |output: &mut TcpStream, body: &[u8]| {
        http::respond(output, 200, "application/json", "", body)
    };
    let logprobs = |value: &str| {
        format!(
            r#"{{"id":"x","choices":[{{"index":0,"text":"a","finish_reason":"length","logprobs":{{"tokens":["a"],"token_logprobs":[{value}],"top_logprobs":[{{"a":{value}}}],"text_offset":[0]}}}}],"usage":{{"prompt_tokens":4,"completion_tokens":1,"total_tokens":5}}}}"#
        )
    };
    match hostile {
        Hostile::HugeBody => {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: \
                 {HUGE_BYTES}\r\n\r\n"
            );
            output.write_all(head.as_bytes())?;
            for _ in 0..HUGE_BYTES / BLOCK_BYTES {
                output.write_all(&vec![b' '; BLOCK_BYTES])?;
            }
        }
        Hostile::EndlessStream => {
            let mut chunks = Chunks::start(output, "text/event-stream", "")?;
            let event = r#"data: {"id":"x","choices":[{"index":0,"text":"a"}]}"#;
            while !stopped.load(Ordering::SeqCst) {
                chunks.send(format!("{event}\n\n").as_bytes())?;
                thread::sleep(Duration::from_micros(200));
            }
        }
        Hostile::LongLine => {
            let mut chunks = Chunks::start(output, "text/event-stream", "")?;
            chunks.send(b"data: ")?;
            for _ in 0..HUGE_BYTES / BLOCK_BYTES {
                chunks.send(&vec![b'x'; BLOCK_BYTES])?;
            }
        }
        Hostile::InvalidUtf8 => json(output, b"{\"id\":\"\xff\xfe\",\"choices\":[\xc3\x28]}")?,
        Hostile::NotANumber => json(output, logprobs("NaN").as_bytes())?,
        Hostile::HugeNumber => json(output, logprobs("-1e999999").as_bytes())?,
        Hostile::WrongTypes => json(output, br#"{"id":7,"choices":{"text":[1]},"usage":"no"}"#)?,
        Hostile::Html => {
            http::respond(output, 200, "text/html", "", b"<!doctype html><h1>Welcome</h1>")?;
        }
        Hostile::Redirect => {
            let place = "location: http://127.0.0.1:9/elsewhere\r\n";
            http::respond(output, 302, "text/plain", place, b"")?;
        }
        Hostile::ResetInBody => {
            output.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{\"id\":")?;
            return Ok(After::Closes);
        }
        Hostile::SlowBytes => {
            output.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n")?;
            while !stopped.load(Ordering::SeqCst) {
                output.write_all(b" ")?;
                thread::sleep(Duration::from_millis(50));
            }
        }
        Hostile::Silent => {
            while !stopped.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(20));
            }
            return Ok(After::Closes);
        }
        Hostile::ServerError => {
            let body = br#"{"error":{"message":"out of memory","type":"server_error"}}"#;
            http::respond(output, 500, "application/json", "", body)?;
        }
        Hostile::EmptyBody => json(output, b"")?,
        Hostile::CutJson => json(output, b"{\"id\":\"x\",\"choices\":[{\"text\":\"a")?,
        Hostile::DeepJson => json(output, "[".repeat(DEPTH).as_bytes())?,
        Hostile::LongHeader => {
            output.write_all(b"HTTP/1.1 200 OK\r\n")?;
            for _ in 0..256 {
                output.write_all(format!("x-{}: y\r\n", "z".repeat(60_000)).as_bytes())?;
            }
            output.write_all(b"content-length: 0\r\n\r\n")?;
        }
    }
    Ok(After::GoesOn)
}
