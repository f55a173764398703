//! The completions route: plain and streamed answers.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use super::engine::{Engine, Event, Scored};
use super::faults::{Faults, Stream};
use super::http::{self, Chunks};
use super::model;
use super::params::Params;
use super::render::{self, quoted};

const EVENT_TOKENS_MAX: usize = 3;

/// A request on its way through the engine.
pub(crate) struct Call<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) faults: &'a Faults,
    pub(crate) params: Arc<Params>,
    /// Counts the requests of the server.
    pub(crate) number: u64,
}

impl Call<'_> {
    fn submit(&self) -> Receiver<Event> {
        let (events, receiver) = mpsc::channel();
        self.engine.submit(&self.params.prompt, &self.params, events);
        receiver
    }

    fn head(&self) -> String {
        let object = if self.params.chat { "chat.completion" } else { "text_completion" };
        let number = self.number;
        format!(r#""id":"cmpl-{number}","object":"{object}","created":1700000000,"model":"fake""#)
    }

    /// A choice of some tokens; those before them give the offsets of the text.
    fn choice(
        &self,
        sample: usize,
        text: &str,
        tokens: &[Scored],
        before: &[Scored],
        finish: Option<&str>,
    ) -> String {
        let bytes = before.iter().map(|scored| model::bytes(scored.token).len()).sum();
        let logprobs = render::logprobs(tokens, bytes, &self.params, self.faults, self.number);
        let ids = if self.params.returns_ids {
            // With the whole answer, or with the first tokens of a stream.
            let prompt = if before.is_empty() {
                format!(r#","prompt_token_ids":{:?}"#, self.params.prompt)
            } else {
                String::new()
            };
            format!(r#","token_ids":{:?}{prompt}"#, render::ids(tokens, self.faults))
        } else {
            String::new()
        };
        let finish = finish.map_or("null".into(), quoted);
        let text = match (self.params.chat, self.params.stream) {
            (false, _) => format!(r#""text":{}"#, quoted(text)),
            (true, true) => format!(r#""delta":{{"content":{}}}"#, quoted(text)),
            (true, false) => {
                format!(r#""message":{{"role":"assistant","content":{}}}"#, quoted(text))
            }
        };
        format!(
            r#"{{"index":{sample},{text},"logprobs":{logprobs},"finish_reason":{finish}{ids}}}"#
        )
    }

    /// The body of a plain answer.
    pub(crate) fn plain(&self) -> String {
        let mut answers = vec![(Vec::new(), None); self.params.samples];
        let mut cached = 0;
        for event in self.submit() {
            match event {
                Event::Prompt { cached: tokens, scores } => {
                    cached = tokens;
                    answers.iter_mut().for_each(|answer| answer.0.extend(scores.iter().cloned()));
                }
                Event::Token { sample, scored, .. } => answers[sample].0.push(scored),
                Event::Finish { sample, reason } => answers[sample].1 = Some(reason),
            }
        }
        let echoed = if self.params.echo { self.params.prompt.len() } else { 0 };
        let count: usize = answers.iter().map(|answer| answer.0.len() - echoed).sum();
        let choices: Vec<String> = answers
            .iter()
            .enumerate()
            .map(|(sample, (tokens, finish))| {
                let shown: Vec<u32> = tokens.iter().map(|scored| scored.token).collect();
                self.choice(sample, &model::text(&shown), tokens, &[], *finish)
            })
            .collect();
        let usage = render::usage(&self.params, count, cached, self.faults);
        let choices = choices.join(",");
        format!("{{{},\"choices\":[{choices}]{usage}}}", self.head())
    }

    /// Streams the answer, and returns what was sent.
    pub(crate) fn stream(&self, output: &mut TcpStream) -> io::Result<Vec<u8>> {
        let mut out = Events { chunks: Chunks::start(output, "text/event-stream")?, copy: vec![] };
        let mut samples: Vec<Part> = (0..self.params.samples).map(|_| Part::default()).collect();
        let (mut cached, mut count) = (0, 0);
        let merged = self.faults.stream == Stream::Merged;
        for event in self.submit() {
            match event {
                Event::Prompt { cached: tokens, scores } => {
                    cached = tokens;
                    for part in &mut samples {
                        part.held.extend(scores.iter().cloned());
                    }
                }
                Event::Token { sample, scored, busy } => {
                    count += 1;
                    let part = &mut samples[sample];
                    part.held.push(scored);
                    if !(merged && busy) || part.held.len() >= EVENT_TOKENS_MAX {
                        // The last token is known only by what follows it.
                        let keep = usize::from(self.faults.stream == Stream::WithoutLast);
                        self.send(&mut out, sample, part, keep, None)?;
                    }
                }
                Event::Finish { sample, reason } => {
                    let part = &mut samples[sample];
                    match self.faults.stream {
                        Stream::CutOff => {
                            self.send(&mut out, sample, part, 0, None)?;
                            continue;
                        }
                        Stream::WithoutLast => part.held.clear(),
                        _ => {}
                    }
                    self.send(&mut out, sample, part, 0, Some(reason))?;
                }
            }
        }
        if self.faults.stream == Stream::CutOff {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if self.params.stream_usage {
            let usage = render::usage(&self.params, count, cached, self.faults);
            out.send(&format!("{{{},\"choices\":[]{usage}}}", self.head()))?;
        }
        out.send("[DONE]")?;
        out.chunks.finish()?;
        Ok(out.copy)
    }

    /// Sends the held tokens of a sample but for the last `keep`.
    fn send(
        &self,
        out: &mut Events,
        sample: usize,
        part: &mut Part,
        keep: usize,
        finish: Option<&str>,
    ) -> io::Result<()> {
        let tokens: Vec<Scored> = part.held.drain(..part.held.len().saturating_sub(keep)).collect();
        if tokens.is_empty() && finish.is_none() {
            return Ok(());
        }
        let before = part.sent.len();
        part.sent.extend(tokens.iter().cloned());
        let shown: Vec<u32> = part.sent.iter().map(|scored| scored.token).collect();
        let whole = model::text(&shown);
        // A character whose bytes are not all there is held back.
        let stable = match finish {
            Some(_) => whole.len(),
            None => whole.trim_end_matches('\u{fffd}').len(),
        };
        let text = whole.get(part.text_bytes..stable).unwrap_or("");
        part.text_bytes = part.text_bytes.max(stable);
        let choice = self.choice(sample, text, &tokens, &part.sent[..before], finish);
        out.send(&format!("{{{},\"choices\":[{choice}]}}", self.head()))
    }
}

/// One sample of a stream.
#[derive(Default)]
struct Part {
    held: Vec<Scored>,
    sent: Vec<Scored>,
    text_bytes: usize,
}

struct Events<'a> {
    chunks: Chunks<'a>,
    copy: Vec<u8>,
}

impl Events<'_> {
    fn send(&mut self, data: &str) -> io::Result<()> {
        let event = format!("data: {data}\n\n");
        self.copy.extend_from_slice(event.as_bytes());
        self.chunks.send(event.as_bytes())
    }
}

/// Sends a whole body that is kept, as a gateway does that has seen the request before.
pub(crate) fn replay(output: &mut TcpStream, stream: bool, body: &[u8]) -> io::Result<()> {
    let kind = if stream { "text/event-stream" } else { "application/json" };
    http::respond(output, 200, kind, "", body)
}
