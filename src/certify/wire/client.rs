//! One connection's worth of client. Each thread has its own, so that requests meant to meet never share a connection.

use std::io::BufReader;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::options::Secret;
use super::answer::{Answer, Assembly};
use super::error::WireError;
use super::read;

/// Most chunks of a stream.
const CHUNKS_MAX: usize = 200_000;

/// Most characters of a server's words that are kept.
const MESSAGE_CHARACTERS_MAX: usize = 200;

/// Where to send, and how long to wait.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
    key: Option<Secret>,
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
    /// A client with a connection of its own. `base` ends in `/v1` or the like.
    pub(crate) fn new(base: &str, key: Option<&Secret>, timeout: Duration) -> Client {
        let base = base.trim_end_matches('/').to_owned();
        Client { agent: agent(&base, timeout), base, key: key.cloned() }
    }

    /// The same, with a connection of its own.
    pub(crate) fn another(&self, timeout: Duration) -> Client {
        Client::new(&self.base, self.key.as_ref(), timeout)
    }

    /// Body of a GET below the address, or below its root, and what the server calls itself.
    pub(crate) fn get(
        &self,
        place: Place,
        path: &str,
    ) -> Result<(String, Option<String>), WireError> {
        let request = self.agent.get(self.url(place, path));
        let request = match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {}", key.expose())),
            None => request,
        };
        let response = request.call().map_err(|e| self.failed(&e))?;
        let server = response.headers().get("server").and_then(|v| v.to_str().ok());
        let server = server.map(|name| name.chars().take(80).collect());
        let response = self.accepted(response)?;
        Ok((read::text(response.into_body().into_reader())?, server))
    }

    /// Body of a POST of JSON.
    pub(crate) fn post(&self, place: Place, path: &str, body: &Value) -> Result<String, WireError> {
        let response = self.accepted(self.send(place, path, body)?)?;
        read::text(response.into_body().into_reader())
    }

    /// Asks for a completion, plain or streamed as its body says.
    pub(crate) fn complete(&self, path: &str, body: &Value) -> Result<Exchange, WireError> {
        let sent = Instant::now();
        let response = self.accepted(self.send(Place::Base, path, body)?)?;
        let kind = response.headers().get("content-type").and_then(|v| v.to_str().ok());
        let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
        let reader = response.into_body().into_with_config().limit(read::BODY_BYTES_MAX).reader();
        let mut assembly = Assembly::default();
        let mut arrivals = Vec::new();
        if is_stream {
            self.join(BufReader::new(reader), &mut assembly, &mut arrivals)?;
        } else {
            assembly.absorb(&read::text(reader)?).map_err(|e| self.without_key(e))?;
        }
        let done = Instant::now();
        Ok(Exchange { answer: assembly.finish()?, sent, arrivals, done })
    }

    fn join(
        &self,
        mut reader: impl std::io::BufRead,
        assembly: &mut Assembly,
        arrivals: &mut Vec<Instant>,
    ) -> Result<(), WireError> {
        for _ in 0..CHUNKS_MAX {
            match read::event(&mut reader)? {
                Some(data) if data.trim() == "[DONE]" => {
                    // What follows is read, so that the connection can be used again.
                    while read::event(&mut reader)?.is_some() {}
                    return Ok(());
                }
                Some(data) if data.trim().is_empty() => {}
                Some(data) => {
                    if assembly.absorb(&data).map_err(|e| self.without_key(e))? {
                        arrivals.push(Instant::now());
                    }
                }
                None if assembly.is_finished() => return Ok(()),
                None => return Err(WireError::Malformed("a stream without its end".into())),
            }
        }
        Err(WireError::Malformed(format!("a stream of more than {CHUNKS_MAX} chunks")))
    }

    fn send(
        &self,
        place: Place,
        path: &str,
        body: &Value,
    ) -> Result<ureq::http::Response<ureq::Body>, WireError> {
        let request = self.agent.post(self.url(place, path));
        let request = request.header("content-type", "application/json");
        let request = match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {}", key.expose())),
            None => request,
        };
        request.send(body.to_string()).map_err(|e| self.failed(&e))
    }

    fn url(&self, place: Place, path: &str) -> String {
        let base = match place {
            Place::Base => self.base.as_str(),
            Place::Root => self.base.strip_suffix("/v1").unwrap_or(&self.base),
        };
        format!("{base}/{path}")
    }

    /// The response if its status is 200; else the status and the server's words.
    fn accepted(
        &self,
        response: ureq::http::Response<ureq::Body>,
    ) -> Result<ureq::http::Response<ureq::Body>, WireError> {
        let code = response.status().as_u16();
        if code == 200 {
            return Ok(response);
        }
        if code == 429 {
            let after = response.headers().get("retry-after").and_then(|v| v.to_str().ok());
            let seconds: Option<u64> = after.and_then(|text| text.trim().parse().ok());
            // Read, so that the connection can be used again.
            let _ = read::text(response.into_body().into_reader());
            return Err(WireError::Busy { retry_after: seconds.map(Duration::from_secs) });
        }
        let text = read::text(response.into_body().into_reader()).unwrap_or_default();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let error = value.get("error").unwrap_or(&value);
        let message = error.get("message").or(error.get("detail")).unwrap_or(error);
        let message = message.as_str().unwrap_or_default();
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        Err(self.without_key(WireError::Status { code, message }))
    }

    fn failed(&self, error: &ureq::Error) -> WireError {
        match error {
            ureq::Error::Timeout(_) => WireError::Timeout,
            other => self.without_key(WireError::Transport(other.to_string())),
        }
    }

    /// A server may quote the key back. Cut only then, so that no part of a key is left.
    fn without_key(&self, error: WireError) -> WireError {
        let hide = |text: String| {
            let text = match &self.key {
                Some(key) => text.replace(key.expose(), "(key)"),
                None => text,
            };
            text.chars().take(MESSAGE_CHARACTERS_MAX).collect()
        };
        match error {
            WireError::Status { code, message } => {
                WireError::Status { code, message: hide(message) }
            }
            WireError::Transport(why) => WireError::Transport(hide(why)),
            WireError::Malformed(why) => WireError::Malformed(hide(why)),
            other => other,
        }
    }
}

/// An agent with one connection to a server.
pub(in crate::certify) fn agent(url: &str, timeout: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        // A redirect could carry the key elsewhere, and would be another server.
        .max_redirects(0)
        .accept_encoding("identity")
        .user_agent(concat!("lockstep/", env!("CARGO_PKG_VERSION")))
        .max_idle_connections(1)
        .max_idle_connections_per_host(1);
    let config = if is_loopback(url) { config.proxy(None) } else { config };
    config.build().new_agent()
}

/// Below which address a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The address that was given.
    Base,
    /// The same without `/v1`.
    Root,
}

/// Whether an address is this machine, which no proxy is asked for.
fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|host| rest.starts_with(host))
}
