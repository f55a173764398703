//! Streamed answers of the completions and chat routes.

use std::io;
use std::net::TcpStream;

use super::completions::{Call, Keep, Part};
use super::decode::Scored;
use super::engine::Event;
use super::http::{After, Chunks};
use super::kinds::Stream;
use super::model;
use super::render;

/// Tokens of an event that holds several.
const EVENT_TOKENS: usize = 3;

/// A choice of which some was sent.
#[derive(Default)]
struct Sent {
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

impl Call<'_> {
    /// Streams the answer, and keeps it before its end.
    pub(crate) fn stream(&self, output: &mut TcpStream, keep: Keep) -> io::Result<After> {
        let kind = self.faults.stream;
        let chunks = Chunks::start(output, "text/event-stream", &self.headers())?;
        let mut out = Events { chunks, copy: vec![] };
        let mut choices: Vec<Sent> = (0..self.choices()).map(|_| Sent::default()).collect();
        let (mut cached, mut count) = (0, 0);
        let mut explained = true;
        for event in self.submit() {
            match event {
                Event::Prompt { choice, cached: tokens, scores } => {
                    cached += if self.is_first_sample(choice) { tokens } else { 0 };
                    choices[choice].held.extend(scores);
                }
                Event::Token { choice, scored, busy } => {
                    count += 1;
                    let part = &mut choices[choice];
                    part.held.push(scored);
                    let tokens = match kind {
                        Stream::Merged if busy => EVENT_TOKENS,
                        Stream::OneRecordAChunk | Stream::AlternativesOfFirst => EVENT_TOKENS,
                        _ => 1,
                    };
                    if part.held.len() >= tokens {
                        // The last token is known only by what follows it.
                        let last = matches!(kind, Stream::WithoutLast | Stream::LastRecordOnly);
                        self.send(&mut out, choice, part, usize::from(last), None)?;
                    }
                }
                Event::Finish { choice, reason } => {
                    let part = &mut choices[choice];
                    explained &= reason != Some("");
                    let reason = match kind {
                        Stream::CutOff => None,
                        Stream::WrongFinish if reason == Some("length") => Some("stop"),
                        Stream::WrongFinish => Some("length"),
                        _ => reason,
                    };
                    if kind == Stream::WithoutLast {
                        part.held.clear();
                    }
                    self.send(&mut out, choice, part, 0, reason)?;
                }
            }
        }
        if kind == Stream::CutOff {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !explained {
            keep(&out.copy);
            out.chunks.finish()?;
            return Ok(After::Closes);
        }
        if self.params.stream_usage {
            let count = count + usize::from(kind == Stream::WrongUsage);
            let usage = render::usage(&self.params, count, cached, self.faults);
            out.send(&format!("{{{},\"choices\":[]{usage}}}", self.head()))?;
        }
        let mark = b"data: [DONE]\n\n";
        out.copy.extend_from_slice(mark);
        keep(&out.copy);
        out.chunks.send(mark)?;
        if kind == Stream::StaysOpen {
            return Ok(After::Lingers);
        }
        out.chunks.finish()?;
        Ok(After::GoesOn)
    }

    /// Sends the held tokens of a choice but for the last `keep`.
    fn send(
        &self,
        out: &mut Events,
        choice: usize,
        part: &mut Sent,
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
        let last = &tokens[tokens.len().saturating_sub(1)..];
        let records = match self.faults.stream {
            Stream::OneRecordAChunk => Some(last),
            Stream::LastRecordOnly => finish.map(|_| last),
            _ => Some(&tokens[..]),
        };
        let before = &part.sent[..before];
        let choice = self.choice(&Part { choice, text, tokens: &tokens, records, before, finish });
        out.send(&format!("{{{},\"choices\":[{choice}]}}", self.head()))
    }
}
