//! The documents that servers send, plain or as chunks of a stream, in each of the formats in use.
//!
//! Log-probabilities stay the decimals that were sent. What is null, not a number or missing is absent, never zero.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::{Key, Token};
use super::decimal::Decimal;
use super::error::WireError;

/// What vLLM sends in place of minus infinity; no token that matters comes near.
const LOWEST: f64 = -9999.0;

#[derive(Deserialize)]
pub(super) struct Document {
    pub(super) id: Option<String>,
    pub(super) system_fingerprint: Option<String>,
    pub(super) choices: Option<Vec<Choice>>,
    pub(super) usage: Option<Usage>,
    pub(super) timings: Option<Timings>,
    error: Option<Value>,
}

impl Document {
    /// Of its text. An error that stands in an answer's place is one.
    pub(super) fn parse(text: &str) -> Result<Document, WireError> {
        let document: Document = match serde_json::from_str(text) {
            Ok(document) => document,
            Err(first) => serde_json::from_str(&without_nan(text))
                .map_err(|_| WireError::Malformed(first.to_string()))?,
        };
        match document.error.as_ref().filter(|e| !e.is_null()) {
            None => Ok(document),
            Some(error) => {
                let message = error.get("message").unwrap_or(error);
                let message = message.as_str().unwrap_or("no message");
                Err(WireError::Malformed(format!("an error in its place: {message}")))
            }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Choice {
    pub(super) index: Option<u64>,
    pub(super) text: Option<String>,
    pub(super) message: Option<Message>,
    pub(super) delta: Option<Message>,
    pub(super) logprobs: Option<Logprobs>,
    #[serde(default, deserialize_with = "reason")]
    pub(super) finish_reason: Option<String>,
    pub(super) token_ids: Option<Vec<u32>>,
    pub(super) prompt_token_ids: Option<Vec<u32>>,
}

/// The part of a chat's message that a model wrote.
#[derive(Default, Deserialize)]
pub(super) struct Message {
    content: Option<Value>,
    reasoning: Option<Value>,
    reasoning_content: Option<Value>,
    refusal: Option<Value>,
    tool_calls: Option<Vec<ToolCall>>,
    function_call: Option<Function>,
}

#[derive(Deserialize)]
struct ToolCall {
    index: Option<u64>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<Value>,
}

/// What a model wrote, in the order in which models write it. Chunks bring a bit of each.
#[derive(Default)]
pub(super) struct Written {
    reasoning: String,
    content: String,
    refusal: String,
    /// Name and arguments; never the id, which is another one each time.
    calls: BTreeMap<u64, (String, String)>,
}

impl Written {
    /// Takes a text outside of a message.
    pub(super) fn push(&mut self, text: &str) {
        self.content.push_str(text);
    }

    /// Takes a message, or a bit of one.
    pub(super) fn take(&mut self, message: Message) {
        let of = |value: Option<Value>| value.as_ref().map(words).filter(|text| !text.is_empty());
        // Where both are sent, the one repeats the other.
        let reasoning = of(message.reasoning).or_else(|| of(message.reasoning_content));
        self.reasoning.push_str(&reasoning.unwrap_or_default());
        self.content.push_str(&of(message.content).unwrap_or_default());
        self.refusal.push_str(&of(message.refusal).unwrap_or_default());
        let calls = message.tool_calls.into_iter().flatten();
        let calls =
            calls.enumerate().map(|(i, call)| (call.index.unwrap_or(i as u64), call.function));
        for (index, function) in calls.chain([(u64::MAX, message.function_call)]) {
            let Some(function) = function else { continue };
            let call = self.calls.entry(index).or_default();
            call.0.push_str(&function.name.unwrap_or_default());
            call.1.push_str(&function.arguments.as_ref().map(words).unwrap_or_default());
        }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        let calls: usize = self.calls.values().map(|(name, text)| name.len() + text.len()).sum();
        self.reasoning.len() + self.content.len() + self.refusal.len() + calls
    }

    /// All of it as one text.
    pub(super) fn text(self) -> String {
        let mut text = self.reasoning + &self.content + &self.refusal;
        for (name, arguments) in self.calls.into_values() {
            text.push_str(&format!("{name}({arguments})"));
        }
        text
    }
}

/// The words of a text, of a list of parts, or of a part.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(words).collect(),
        Value::Object(part) => {
            let named = ["text", "content", "thinking", "refusal"].into_iter();
            match named.filter_map(|name| part.get(name)).next() {
                Some(inner) => words(inner),
                // Arguments that came as an object.
                None => value.to_string(),
            }
        }
        _ => String::new(),
    }
}

/// A reason in any of the forms in use: a word, or an object that says its type.
fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Option::<Value>::deserialize(deserializer)? {
        None | Some(Value::Null) => None,
        Some(Value::String(reason)) => Some(reason),
        Some(other) => match other.get("type").and_then(Value::as_str) {
            Some(reason) => Some(reason.to_owned()),
            None => Some(other.to_string()),
        },
    })
}

/// The alternatives of a position, by text, each that was sent; values that are none are null.
struct Alternatives(Vec<(String, Option<Box<RawValue>>)>);

impl<'de> Deserialize<'de> for Alternatives {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Alternatives, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Alternatives;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("alternatives by their text")
            }

            // A map would keep the last of two tokens with one text.
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Alternatives, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Alternatives(all))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// Both formats in one: a server sends the fields of one of them.
#[derive(Deserialize)]
pub(super) struct Logprobs {
    tokens: Option<Vec<Option<String>>>,
    token_logprobs: Option<Vec<Option<Box<RawValue>>>>,
    top_logprobs: Option<Vec<Option<Alternatives>>>,
    content: Option<Vec<Content>>,
    refusal: Option<Vec<Content>>,
}

#[derive(Deserialize)]
struct Content {
    token: Option<String>,
    #[serde(alias = "token_id")]
    id: Option<u32>,
    bytes: Option<Vec<u8>>,
    logprob: Option<Box<RawValue>>,
    top_logprobs: Option<Vec<Content>>,
}

#[derive(Deserialize)]
pub(super) struct Usage {
    pub(super) prompt_tokens: Option<u64>,
    pub(super) completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
}

impl Usage {
    pub(super) fn cached_tokens(&self) -> Option<u64> {
        self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens)
    }
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

/// llama.cpp's own counters.
#[derive(Deserialize)]
pub(super) struct Timings {
    pub(super) cache_n: Option<u64>,
}

impl Logprobs {
    pub(super) fn tokens(self) -> Vec<Token> {
        if self.content.is_some() || self.refusal.is_some() {
            let all = self.content.into_iter().chain(self.refusal).flatten();
            return all.map(Content::token).collect();
        }
        let mut logprobs = self.token_logprobs.unwrap_or_default().into_iter();
        let mut top = self.top_logprobs.unwrap_or_default().into_iter();
        let token = |text: Option<String>| {
            let text = text.unwrap_or_default();
            let name = key(None, None, &text);
            let mut token = Token {
                text: shown(&name, text),
                key: name,
                logprob: logprobs.next().flatten().as_deref().and_then(decimal),
                top: BTreeMap::new(),
                unreadable: 0,
            };
            for (text, value) in top.next().flatten().into_iter().flat_map(|all| all.0) {
                token.alternative(key(None, None, &text), value.as_deref().and_then(decimal));
            }
            token
        };
        self.tokens.unwrap_or_default().into_iter().map(token).collect()
    }
}

impl Content {
    fn token(self) -> Token {
        let text = self.token.unwrap_or_default();
        let name = key(self.id, self.bytes, &text);
        let mut token = Token {
            text: shown(&name, text),
            key: name,
            logprob: self.logprob.as_deref().and_then(decimal),
            top: BTreeMap::new(),
            unreadable: 0,
        };
        for other in self.top_logprobs.into_iter().flatten() {
            let name = key(other.id, other.bytes, &other.token.unwrap_or_default());
            token.alternative(name, other.logprob.as_deref().and_then(decimal));
        }
        token
    }
}

/// What a token's text is, if it is not its id in other words.
fn shown(name: &Key, text: String) -> String {
    match name {
        Key::Id(_) if text.starts_with("token_id:") => String::new(),
        _ => text,
    }
}

fn key(id: Option<u32>, bytes: Option<Vec<u8>>, text: &str) -> Key {
    // vLLM's way to name tokens by id where the format has text alone.
    let named = text.strip_prefix("token_id:").and_then(|id| id.parse().ok());
    match (id.or(named), bytes) {
        (Some(id), _) => Key::Id(id),
        (None, Some(bytes)) if !bytes.is_empty() => Key::Bytes(bytes),
        _ => Key::Text(text.into()),
    }
}

/// A value and not one of the stands-in for minus infinity.
fn decimal(value: &RawValue) -> Option<Decimal> {
    Decimal::parse(value.get()).filter(|decimal| decimal.value() > LOWEST)
}

/// The text with `NaN` and `Infinity`, which some servers write, replaced by null. Strings are left alone.
fn without_nan(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut quoted = false;
    while let Some(c) = rest.chars().next() {
        if quoted && c == '\\' {
            let two = rest.char_indices().nth(2).map_or(rest.len(), |(i, _)| i);
            out.push_str(&rest[..two]);
            rest = &rest[two..];
            continue;
        }
        quoted ^= c == '"';
        let word = ["-Infinity", "Infinity", "NaN", "-inf", "inf", "nan"].into_iter();
        match word.into_iter().find(|word| !quoted && rest.starts_with(word)) {
            Some(word) => {
                out.push_str("null");
                rest = &rest[word.len()..];
            }
            None => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}
