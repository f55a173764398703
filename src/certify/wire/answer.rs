//! Answers, plain or put together from the chunks of a stream, in each of the formats in use.
//!
//! Log-probabilities stay the decimals that were sent. What is null, not a number or missing is absent, never zero.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decimal::Decimal;
use super::error::WireError;

/// What vLLM sends in place of minus infinity; no token that matters comes near.
const LOWEST: f64 = -9999.0;
/// Most tokens of an answer that are kept.
const TOKENS_MAX: usize = 100_000;

/// What names a token, best first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Id(u32),
    Bytes(Vec<u8>),
    Text(String),
}

impl Key {
    /// Whether it names one token: text that holds U+FFFD may be any of several.
    pub(crate) fn is_certain(&self) -> bool {
        !matches!(self, Key::Text(text) if text.contains('\u{fffd}'))
    }
}

/// One token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) key: Key,
    pub(crate) text: String,
    pub(crate) logprob: Option<Decimal>,
    pub(crate) top: BTreeMap<Key, Decimal>,
    /// Alternatives without a finite value.
    pub(crate) unreadable: u64,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) id: Option<String>,
    pub(crate) fingerprint: Option<String>,
    pub(crate) text: String,
    /// Empty where the server names no tokens.
    pub(crate) tokens: Vec<Token>,
    pub(crate) prompt_ids: Option<Vec<u32>>,
    pub(crate) finish: Option<String>,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    pub(crate) cached_tokens: Option<u64>,
    /// Whether ids were sent that do not fit the tokens beside them.
    pub(crate) mismatched: bool,
}

impl Answer {
    /// Ids of the tokens, if each has one.
    pub(crate) fn ids(&self) -> Option<Vec<u32>> {
        let id = |token: &Token| match token.key {
            Key::Id(id) => Some(id),
            _ => None,
        };
        let ids: Option<Vec<u32>> = self.tokens.iter().map(id).collect();
        ids.filter(|ids| !ids.is_empty())
    }
}

#[derive(Deserialize)]
struct Document {
    id: Option<String>,
    system_fingerprint: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Usage>,
    timings: Option<Timings>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<String>,
    message: Option<Message>,
    delta: Option<Message>,
    logprobs: Option<Logprobs>,
    finish_reason: Option<String>,
    token_ids: Option<Vec<u32>>,
    prompt_token_ids: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    reasoning_content: Option<String>,
}

/// The alternatives of a position, by text; values that are none are null.
type Alternatives = BTreeMap<String, Option<Box<RawValue>>>;

/// Both formats in one: a server sends the fields of one of them.
#[derive(Deserialize)]
struct Logprobs {
    tokens: Option<Vec<Option<String>>>,
    token_logprobs: Option<Vec<Option<Box<RawValue>>>>,
    top_logprobs: Option<Vec<Option<Alternatives>>>,
    content: Option<Vec<Content>>,
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
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

/// llama.cpp's own counters.
#[derive(Deserialize)]
struct Timings {
    cache_n: Option<u64>,
}

/// An answer in the making.
#[derive(Default)]
pub(crate) struct Assembly {
    answer: Answer,
    ids: Vec<u32>,
    choices: usize,
}

impl Assembly {
    /// Takes a document: the whole answer, or a chunk. Returns whether it held anything of the answer itself.
    pub(crate) fn absorb(&mut self, text: &str) -> Result<bool, WireError> {
        let document: Document = match serde_json::from_str(text) {
            Ok(document) => document,
            Err(first) => serde_json::from_str(&without_nan(text))
                .map_err(|_| WireError::Malformed(first.to_string()))?,
        };
        if let Some(error) = document.error.filter(|e| !e.is_null()) {
            let message = error.get("message").and_then(|m| m.as_str()).unwrap_or("no message");
            return Err(WireError::Malformed(format!("an error in its place: {message}")));
        }
        let answer = &mut self.answer;
        answer.id = answer.id.take().or(document.id);
        answer.fingerprint = document.system_fingerprint.or(answer.fingerprint.take());
        if let Some(usage) = document.usage {
            answer.prompt_tokens = usage.prompt_tokens.or(answer.prompt_tokens);
            answer.completion_tokens = usage.completion_tokens.or(answer.completion_tokens);
            let cached = usage.prompt_tokens_details.and_then(|details| details.cached_tokens);
            answer.cached_tokens = cached.or(answer.cached_tokens);
        }
        if let Some(cached) = document.timings.and_then(|timings| timings.cache_n) {
            answer.cached_tokens = answer.cached_tokens.or(Some(cached));
        }
        let mut held = false;
        for choice in document.choices.into_iter().flatten() {
            self.choices += 1;
            held |= self.choice(choice)?;
        }
        Ok(held)
    }

    fn choice(&mut self, choice: Choice) -> Result<bool, WireError> {
        let answer = &mut self.answer;
        let before = (answer.text.len(), answer.tokens.len(), self.ids.len());
        let message = choice.message.or(choice.delta);
        let (content, reasoning) = match message {
            Some(message) => (message.content, message.reasoning_content),
            None => (None, None),
        };
        for text in [choice.text, reasoning, content].into_iter().flatten() {
            answer.text.push_str(&text);
        }
        answer.finish = choice.finish_reason.or(answer.finish.take());
        answer.prompt_ids = choice.prompt_token_ids.or(answer.prompt_ids.take());
        if let Some(logprobs) = choice.logprobs {
            answer.tokens.extend(logprobs.tokens());
        }
        self.ids.extend(choice.token_ids.into_iter().flatten());
        if answer.tokens.len() > TOKENS_MAX || self.ids.len() > TOKENS_MAX {
            return Err(WireError::Malformed(format!("more than {TOKENS_MAX} tokens")));
        }
        Ok(before != (answer.text.len(), answer.tokens.len(), self.ids.len()))
    }

    /// Whether the answer says why it ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.answer.finish.is_some()
    }

    /// The answer.
    pub(crate) fn finish(self) -> Result<Answer, WireError> {
        let Assembly { mut answer, ids, choices } = self;
        if choices == 0 {
            return Err(WireError::Malformed("no choices".into()));
        }
        if answer.tokens.is_empty() {
            let bare = |id| Token {
                key: Key::Id(id),
                text: String::new(),
                logprob: None,
                top: BTreeMap::new(),
                unreadable: 0,
            };
            answer.tokens = ids.into_iter().map(bare).collect();
            return Ok(answer);
        }
        // Ids that are beside more or fewer tokens name none of them: the prompt's may be among those.
        if answer.tokens.len() == ids.len() {
            for (token, id) in answer.tokens.iter_mut().zip(ids) {
                match token.key {
                    Key::Id(other) => answer.mismatched |= other != id,
                    _ => token.key = Key::Id(id),
                }
            }
        } else if !ids.is_empty() {
            answer.mismatched = answer.completion_tokens == Some(answer.tokens.len() as u64);
        }
        Ok(answer)
    }
}

impl Logprobs {
    fn tokens(self) -> Vec<Token> {
        if let Some(content) = self.content {
            return content.into_iter().map(Content::token).collect();
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
            for (text, value) in top.next().flatten().into_iter().flatten() {
                token.alternative(key(None, None, &text), value.as_deref());
            }
            token
        };
        self.tokens.unwrap_or_default().into_iter().map(token).collect()
    }
}

impl Token {
    fn alternative(&mut self, key: Key, value: Option<&RawValue>) {
        match value.and_then(decimal).filter(|_| key.is_certain()) {
            Some(value) => drop(self.top.insert(key, value)),
            None => self.unreadable += 1,
        }
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
            let text = other.token.unwrap_or_default();
            token.alternative(key(other.id, other.bytes, &text), other.logprob.as_deref());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(chunks: &[&str]) -> Answer {
        let mut assembly = Assembly::default();
        for chunk in chunks {
            assembly.absorb(chunk).unwrap();
        }
        assembly.finish().unwrap()
    }

    const LEGACY: &str = r#"{"id":"a","choices":[{"text":"xy","finish_reason":"length","token_ids":[7,8],
        "logprobs":{"tokens":["x","y"],"token_logprobs":[-0.10,-1e-3],
        "top_logprobs":[{"x":-0.10,"z":-2.5},null]}}],
        "usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}"#;

    #[test]
    fn the_legacy_format_keeps_its_decimals_and_its_ids() {
        let answer = answer(&[LEGACY]);
        assert_eq!(answer.ids(), Some(vec![7, 8]));
        assert_eq!(answer.tokens[0].logprob.as_ref().unwrap().as_str(), "-0.10");
        assert_eq!(answer.tokens[0].top.len(), 2);
        assert_eq!((answer.cached_tokens, answer.prompt_tokens), (Some(0), Some(3)));
    }

    #[test]
    fn a_stream_joins_to_the_plain_answer() {
        let plain = answer(&[LEGACY]);
        let joined = answer(&[
            r#"{"id":"a","choices":[{"text":"x","token_ids":[7],"logprobs":{"tokens":["x"],"token_logprobs":[-0.10],"top_logprobs":[{"z":-2.5,"x":-0.10}]}}]}"#,
            r#"{"id":"a","choices":[{"text":"y","finish_reason":"length","token_ids":[8],"logprobs":{"tokens":["y"],"token_logprobs":[-1e-3],"top_logprobs":[null]}}]}"#,
            r#"{"id":"a","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}"#,
        ]);
        assert_eq!(joined, plain);
    }

    #[test]
    fn the_chat_format_names_tokens_by_id_before_bytes_before_text() {
        let of = |fields: &str| {
            let text = format!(
                r#"{{"choices":[{{"message":{{"content":"x"}},"logprobs":{{"content":[{{"token":"x","logprob":-1{fields}}}]}}}}]}}"#
            );
            answer(&[&text]).tokens[0].key.clone()
        };
        assert_eq!(of(r#","id":4,"bytes":[120]"#), Key::Id(4));
        assert_eq!(of(r#","bytes":[120]"#), Key::Bytes(vec![120]));
        assert_eq!(of(""), Key::Text("x".into()));
    }

    /// -inf, null and alternatives whose text may be any of several tokens are counted, not compared.
    #[test]
    fn values_that_are_no_numbers_are_absent() {
        let text = r#"{"choices":[{"text":"NaN \"NaN","logprobs":{"tokens":["a"],"token_logprobs":[NaN],
            "top_logprobs":[{"a":-Infinity,"b":null,"\ufffd":-1,"c":-2,"d":-9999.0}]}}]}"#;
        let answer = answer(&[text]);
        assert_eq!(answer.text, "NaN \"NaN");
        assert_eq!(answer.tokens[0].logprob, None);
        assert_eq!((answer.tokens[0].top.len(), answer.tokens[0].unreadable), (1, 4));
    }

    #[test]
    fn ids_that_do_not_fit_the_tokens_are_said_to() {
        let shifted = LEGACY.replace("[7,8]", "[7]");
        assert!(answer(&[&shifted]).mismatched);
        let named = LEGACY.replace(r#"["x","y"]"#, r#"["token_id:7","token_id:9"]"#);
        assert!(answer(&[&named]).mismatched);
    }

    #[test]
    fn what_is_no_answer_is_refused_in_one_line() {
        let refused = |text: &str| {
            let mut assembly = Assembly::default();
            assembly.absorb(text).and_then(|_| assembly.finish().map(|_| ())).unwrap_err()
        };
        for bad in [
            "",
            "<html>",
            "[1]",
            r#"{"choices":[]}"#,
            r#"{"choices":7}"#,
            r#"{"error":{"message":"x"}}"#,
        ] {
            assert!(matches!(refused(bad), WireError::Malformed(_)), "{bad}");
        }
    }
}
