//! The completions and chat routes: plain answers, and what they share with streamed ones.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use super::decode::Scored;
use super::engine::{Engine, Event};
use super::faults::Faults;
use super::http::{self, After};
use super::kinds::ChatText;
use super::model;
use super::params::Params;
use super::render::{self, quoted};

/// A request on its way through the engine.
pub(crate) struct Call<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) faults: &'a Faults,
    pub(crate) params: Arc<Params>,
    /// Counts the requests of the server.
    pub(crate) number: u64,
    /// The name of the replica that answers, where it is told.
    pub(crate) replica: Option<&'static str>,
}

/// Keeps a whole answer before its end is sent: a client that asks again at once finds it kept.
pub(crate) type Keep<'a> = &'a dyn Fn(&[u8]);

/// A choice, or the part of one that an event holds.
pub(crate) struct Part<'a> {
    pub(crate) choice: usize,
    pub(crate) text: &'a str,
    pub(crate) tokens: &'a [Scored],
    /// The last ones of the tokens: those whose logprobs are sent.
    pub(crate) records: Option<&'a [Scored]>,
    /// Tokens of the choice before these; they give the offsets of the text.
    pub(crate) before: &'a [Scored],
    pub(crate) finish: Option<&'a str>,
}

impl Call<'_> {
    pub(crate) fn submit(&self) -> Receiver<Event> {
        let (events, receiver) = mpsc::channel();
        self.engine.submit(&self.params, &events);
        receiver
    }

    /// Choices of the answer: the samples of the first prompt, then those of the second.
    pub(crate) fn choices(&self) -> usize {
        self.params.prompts.len() * self.params.samples
    }

    /// Samples of one prompt share what the cache had.
    pub(crate) fn is_first_sample(&self, choice: usize) -> bool {
        choice.is_multiple_of(self.params.samples)
    }

    /// Header lines beside the usual ones.
    pub(crate) fn headers(&self) -> String {
        self.replica.map_or(String::new(), |name| format!("x-replica: {name}\r\n"))
    }

    pub(crate) fn head(&self) -> String {
        let object = if self.params.chat { "chat.completion" } else { "text_completion" };
        let number = self.number;
        let replica = self
            .replica
            .map_or(String::new(), |name| format!(r#","system_fingerprint":"fp_{name}""#));
        format!(
            r#""id":"cmpl-{number}","object":"{object}","created":1700000000,"model":"fake"{replica}"#
        )
    }

    /// A choice as it is sent.
    pub(crate) fn choice(&self, part: &Part) -> String {
        let bytes = |tokens: &[Scored]| -> usize {
            tokens.iter().map(|scored| model::bytes(scored.token).len()).sum()
        };
        let logprobs = part.records.map_or("null".into(), |records| {
            let unrecorded = &part.tokens[..part.tokens.len() - records.len()];
            let offset = bytes(part.before) + bytes(unrecorded);
            render::logprobs(records, offset, &self.params, self.faults, self.number)
        });
        let ids = if self.params.returns_ids {
            // With the whole answer, or with the first tokens of a stream.
            let prompt = if part.before.is_empty() {
                let prompt = &self.params.prompts[part.choice / self.params.samples];
                format!(r#","prompt_token_ids":{prompt:?}"#)
            } else {
                String::new()
            };
            format!(r#","token_ids":{:?}{prompt}"#, render::ids(part.tokens, self.faults))
        } else {
            String::new()
        };
        let finish = part.finish.map_or("null".into(), quoted);
        let text = match (self.params.chat, self.params.stream) {
            (false, _) => format!(r#""text":{}"#, quoted(part.text)),
            (true, true) => format!(r#""delta":{{{}}}"#, self.chat_text(part.text)),
            (true, false) => {
                format!(r#""message":{{"role":"assistant",{}}}"#, self.chat_text(part.text))
            }
        };
        let index = part.choice;
        format!(r#"{{"index":{index},{text},"logprobs":{logprobs},"finish_reason":{finish}{ids}}}"#)
    }

    fn chat_text(&self, text: &str) -> String {
        let text = quoted(text);
        match self.faults.chat_text {
            ChatText::Content => format!(r#""content":{text}"#),
            ChatText::Reasoning => format!(r#""content":null,"reasoning":{text}"#),
            ChatText::ReasoningContent => format!(r#""content":null,"reasoning_content":{text}"#),
            ChatText::Nowhere => r#""content":null"#.into(),
        }
    }

    /// The body of a plain answer, and what becomes of the connection.
    pub(crate) fn plain(&self) -> (String, After) {
        let mut answers = vec![(Vec::new(), None); self.choices()];
        let (mut cached, mut count) = (0, 0);
        let mut after = After::GoesOn;
        for event in self.submit() {
            match event {
                Event::Prompt { choice, cached: tokens, scores } => {
                    cached += if self.is_first_sample(choice) { tokens } else { 0 };
                    answers[choice].0.extend(scores);
                }
                Event::Token { choice, scored, .. } => {
                    count += 1;
                    answers[choice].0.push(scored);
                }
                Event::Finish { choice, reason } => {
                    answers[choice].1 = reason;
                    if reason == Some("") {
                        after = After::Closes;
                    }
                }
            }
        }
        let choices: Vec<String> = answers
            .iter()
            .enumerate()
            .map(|(choice, (tokens, finish))| {
                let shown: Vec<u32> = tokens.iter().map(|scored| scored.token).collect();
                let (text, finish) = (&model::text(&shown)[..], *finish);
                let records = Some(&tokens[..]);
                self.choice(&Part { choice, text, tokens, records, before: &[], finish })
            })
            .collect();
        let usage = render::usage(&self.params, count, cached, self.faults);
        let choices = choices.join(",");
        (format!("{{{},\"choices\":[{choices}]{usage}}}", self.head()), after)
    }

    /// Sends the plain answer, once it is kept.
    pub(crate) fn answer(&self, output: &mut TcpStream, keep: Keep) -> io::Result<After> {
        let (answer, after) = self.plain();
        keep(answer.as_bytes());
        http::respond(output, 200, "application/json", &self.headers(), answer.as_bytes())?;
        Ok(after)
    }
}

/// Sends a whole body that is kept, as a gateway does that has seen the request before.
pub(crate) fn replay(output: &mut TcpStream, stream: bool, body: &[u8]) -> io::Result<()> {
    let kind = if stream { "text/event-stream" } else { "application/json" };
    http::respond(output, 200, kind, "", body)
}
