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
mod tests;
