//! A server of a few lines whose life is the length of a file: a command of a shell begins the next one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long it refuses everything when a life begins.
const LOADING: Duration = Duration::from_millis(250);

/// Listens until the process of the test ends.
pub(crate) struct Server {
    url: String,
}

struct Lives {
    file: PathBuf,
    /// Whether answers are those of one life.
    differ: bool,
    now: Mutex<(u64, Option<Instant>)>,
}

impl Server {
    /// `echo >> file` begins the next life.
    pub(crate) fn start(file: &Path, differ: bool) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback");
        let url = format!("http://{}/v1", listener.local_addr().expect("a bound address"));
        let lives = Arc::new(Lives { file: file.into(), differ, now: Mutex::new((0, None)) });
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let lives = Arc::clone(&lives);
                std::thread::spawn(move || lives.answer(stream));
            }
        });
        Server { url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Lives {
    /// The life, unless it is just beginning.
    fn life(&self) -> Option<u64> {
        let length = std::fs::metadata(&self.file).map_or(0, |file| file.len());
        let mut now = self.now.lock().expect("no thread panics");
        if now.0 != length {
            *now = (length, Some(Instant::now()));
        }
        now.1.is_none_or(|began| began.elapsed() > LOADING).then_some(length)
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        let (mut line, mut first, mut length) = (String::new(), String::new(), 0);
        while reader.read_line(&mut line).is_ok_and(|n| n > 0) && line != "\r\n" {
            if first.is_empty() {
                first.clone_from(&line);
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (code, answer) = match (self.life(), first.split(' ').nth(1)) {
            (None, _) => (503, json!({"error": "loading"})),
            (_, Some("/v1/models")) => (200, json!({"data": [{"id": "m"}]})),
            (Some(life), Some("/v1/completions")) => self.complete(life, &body),
            _ => (404, json!({})),
        };
        let answer = answer.to_string();
        let _ = write!(
            stream,
            "HTTP/1.1 {code} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
            answer.len()
        );
    }

    fn complete(&self, life: u64, body: &Value) -> (u16, Value) {
        let is_text = body["prompt"].is_string();
        if !is_text || ["stream", "echo", "logprobs"].iter().any(|f| body.get(f).is_some()) {
            return (400, json!({"error": {"message": "not taken"}}));
        }
        let mut hasher = DefaultHasher::new();
        (body["prompt"].as_str(), if self.differ { life } else { 0 }).hash(&mut hasher);
        let text = format!("{:016x}", hasher.finish());
        let tokens = body["max_tokens"].as_u64().unwrap_or(16);
        let usage = json!({"prompt_tokens": 9, "completion_tokens": tokens});
        let choice = json!({"index": 0, "text": text, "finish_reason": "length"});
        (200, json!({"choices": [choice], "usage": usage}))
    }
}
