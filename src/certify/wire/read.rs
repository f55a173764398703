//! Bounded reads of bodies: whole, or event by event.

use std::io::{BufRead, ErrorKind, Read};

use super::error::WireError;

/// Largest body read, in bytes.
pub(super) const BODY_BYTES_MAX: u64 = 16 << 20;
/// Longest event of a stream, in bytes.
pub(super) const EVENT_BYTES_MAX: usize = 1 << 20;

/// The whole body as text.
pub(super) fn text(body: impl Read) -> Result<String, WireError> {
    let mut bytes = Vec::new();
    body.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| failed(&e))?;
    if bytes.len() as u64 > BODY_BYTES_MAX {
        return Err(WireError::Malformed(format!("larger than {BODY_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| WireError::Malformed("not UTF-8".into()))
}

/// Data of the next event of a server-sent stream; `None` at its end. Comments and other fields are passed over.
pub(super) fn event(body: &mut impl BufRead) -> Result<Option<String>, WireError> {
    let mut data = Vec::new();
    let mut seen = false;
    loop {
        let mut line = Vec::new();
        let left = (EVENT_BYTES_MAX - data.len()) as u64 + 1;
        let read = body.by_ref().take(left).read_until(b'\n', &mut line);
        let read = read.map_err(|e| failed(&e))?;
        if line.len() as u64 == left {
            let why = format!("an event of more than {EVENT_BYTES_MAX} bytes");
            return Err(WireError::Malformed(why));
        }
        let ended = read == 0;
        let line = line.trim_ascii_end();
        if let Some(rest) = line.strip_prefix(b"data:") {
            if seen {
                data.push(b'\n');
            }
            seen = true;
            data.extend_from_slice(rest.strip_prefix(b" ").unwrap_or(rest));
        }
        if seen && (line.is_empty() || ended) {
            let not_text = |_| WireError::Malformed("an event that is not UTF-8".into());
            return String::from_utf8(data).map(Some).map_err(not_text);
        }
        if ended {
            return Ok(None);
        }
    }
}

/// A failed read in one line.
fn failed(error: &std::io::Error) -> WireError {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => WireError::Timeout,
        _ if error.to_string().contains("timeout") => WireError::Timeout,
        _ => WireError::Transport(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(stream: &[u8]) -> Result<Vec<String>, WireError> {
        let mut stream = stream;
        let mut events = Vec::new();
        while let Some(data) = event(&mut stream)? {
            events.push(data);
        }
        Ok(events)
    }

    #[test]
    fn events_are_joined_from_lines_and_the_last_needs_no_end() {
        let stream = b": hello\r\ndata: {\"a\":\r\ndata:1}\r\n\r\nevent: x\n\ndata: [DONE]";
        assert_eq!(events(stream).unwrap(), ["{\"a\":\n1}", "[DONE]"]);
    }

    #[test]
    fn a_line_without_end_and_bytes_that_are_no_text_are_refused() {
        let long = vec![b'x'; EVENT_BYTES_MAX + 2];
        assert!(matches!(events(&long), Err(WireError::Malformed(_))));
        assert!(matches!(events(b"data: \xff\n\n"), Err(WireError::Malformed(_))));
        let many = b"data: 0123456789\n".repeat(EVENT_BYTES_MAX / 8);
        assert!(matches!(events(&many), Err(WireError::Malformed(_))));
    }
}
