//! Answers in the form of the completions route. The text is written piece by piece: some servers
//! send numbers that JSON does not have, and the order of alternatives is theirs.

use serde_json::json;

use super::decode::Scored;
use super::faults::Faults;
use super::kinds::{Alternatives, Ids, Logprobs, Stream, Usage};
use super::model;
use super::params::Params;

/// The shortest decimal that gives the f32 back, or one of so many digits.
fn number(value: Option<f32>, faults: &Faults) -> String {
    match (value, faults.decimals) {
        (None, _) => "null".into(),
        (Some(0.0), None) => "0.0".into(),
        (Some(value), Some(decimals)) => format!("{value:.decimals$}"),
        (Some(value), None) => format!("{value}"),
    }
}

pub(crate) fn quoted(text: &str) -> String {
    json!(text).to_string()
}

/// The name of a token, quoted.
fn name(token: u32, params: &Params) -> String {
    if params.tokens_as_ids {
        return quoted(&format!("token_id:{token}"));
    }
    quoted(&String::from_utf8_lossy(&model::bytes(token)))
}

/// `logprobs` of tokens, or null where none were asked for. `turn` counts the requests.
pub(crate) fn logprobs(
    tokens: &[Scored],
    text_bytes_before: usize,
    params: &Params,
    faults: &Faults,
    turn: u64,
) -> String {
    let missing = match faults.logprobs {
        Logprobs::Null => true,
        Logprobs::NullInStream => params.stream,
        _ => tokens.iter().any(|scored| scored.logprob.is_some_and(f32::is_nan)),
    };
    let Some(asked) = params.logprobs.filter(|_| !missing) else { return "null".into() };
    let tokens = &listed(tokens, params, faults)[..];
    if params.chat {
        let entry = |scored: &Scored| chat_entry(scored, asked, params, faults, turn);
        return format!(
            r#"{{"content":[{}]}}"#,
            tokens.iter().map(entry).collect::<Vec<_>>().join(",")
        );
    }
    let mut offset = text_bytes_before;
    let mut offsets = Vec::new();
    for scored in tokens {
        offsets.push(offset);
        offset += model::bytes(scored.token).len();
    }
    let list = |of: &dyn Fn(&Scored) -> String| -> String {
        tokens.iter().map(of).collect::<Vec<_>>().join(",")
    };
    format!(
        r#"{{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":{offsets:?}}}"#,
        list(&|scored| name(scored.token, params)),
        list(&|scored| number(scored.logprob, faults)),
        list(&|scored| alternatives(scored, asked, params, faults, turn)),
    )
}

/// Tokens with the values and alternatives that they are sent with.
fn listed(tokens: &[Scored], params: &Params, faults: &Faults) -> Vec<Scored> {
    let mut tokens = tokens.to_vec();
    if faults.logprobs == Logprobs::Zeros {
        for scored in &mut tokens {
            scored.logprob = scored.logprob.map(|_| 0.0);
            scored.best.clear();
        }
    }
    if params.stream && faults.stream == Stream::AlternativesOfFirst {
        let first = tokens.first().map(|scored| scored.best.clone()).unwrap_or_default();
        tokens.iter_mut().for_each(|scored| scored.best.clone_from(&first));
    }
    tokens
}

fn alternatives(
    scored: &Scored,
    asked: usize,
    params: &Params,
    faults: &Faults,
    turn: u64,
) -> String {
    if scored.logprob.is_none() {
        return "null".into();
    }
    let entries = entries(scored, asked, faults, turn);
    let written = entries.iter().map(|(token, value)| format!("{}:{value}", name(*token, params)));
    format!("{{{}}}", written.collect::<Vec<_>>().join(","))
}

/// A token in the form of the chat route.
fn chat_entry(
    scored: &Scored,
    asked: usize,
    params: &Params,
    faults: &Faults,
    turn: u64,
) -> String {
    let one = |token: u32, value: &str| {
        let (name, bytes) = (name(token, params), model::bytes(token));
        format!(r#""token":{name},"logprob":{value},"bytes":{bytes:?}"#)
    };
    let others: Vec<String> = entries(scored, asked, faults, turn)
        .iter()
        .map(|(token, value)| format!("{{{}}}", one(*token, value)))
        .collect();
    let own = one(scored.token, &number(scored.logprob, faults));
    format!(r#"{{{own},"top_logprobs":[{}]}}"#, others.join(","))
}

/// Tokens and written values of the alternatives of a position.
fn entries(scored: &Scored, asked: usize, faults: &Faults, turn: u64) -> Vec<(u32, String)> {
    let mut count = asked;
    match faults.alternatives {
        Alternatives::Cut(most) => count = count.min(most),
        Alternatives::FewerByTurns if turn % 2 == 1 => count = count.saturating_sub(1),
        _ => {}
    }
    let mut entries: Vec<(u32, String)> = scored
        .best
        .iter()
        .take(count)
        .map(|&(token, value)| (token, number(Some(value), faults)))
        .collect();
    let own = scored.token;
    let own_entry = (own, number(scored.logprob, faults));
    match faults.alternatives {
        Alternatives::WithoutSampled => entries.retain(|entry| entry.0 != own),
        Alternatives::SampledTwice => entries.push(own_entry),
        _ if entries.iter().any(|entry| entry.0 == own) => {}
        _ => entries.push(own_entry),
    }
    match (faults.alternatives, entries.last_mut()) {
        (Alternatives::Shuffled, _) => {
            entries.sort_by_key(|entry| model::mix(u64::from(entry.0) ^ turn));
        }
        (Alternatives::OddValues, Some((token, value))) if *token != own => {
            *value = ["null", "-9999.0", "-Infinity"][(turn % 3) as usize].into();
        }
        _ => {}
    }
    entries
}

/// The ids of an answer, as they are shown.
pub(crate) fn ids(tokens: &[Scored], faults: &Faults) -> Vec<u32> {
    let shift = u32::from(faults.ids == Ids::Mismatched);
    tokens.iter().map(|scored| (scored.token + shift) % model::VOCABULARY).collect()
}

/// Usage counters, with the comma before them; nothing where the server sends none.
pub(crate) fn usage(
    params: &Params,
    answer_tokens: usize,
    cached: usize,
    faults: &Faults,
) -> String {
    let details = match faults.usage {
        Usage::None => return String::new(),
        Usage::WithoutCached => None,
        Usage::Whole => Some(cached),
        Usage::CachedRounded(unit) => Some(cached / unit * unit),
        Usage::CachedTimesSamples => Some(cached * params.samples),
    };
    let details = details.map_or(String::new(), |cached| {
        format!(r#","prompt_tokens_details":{{"cached_tokens":{cached}}}"#)
    });
    let prompt: usize = params.prompts.iter().map(Vec::len).sum();
    let total = prompt + answer_tokens;
    format!(
        r#","usage":{{"prompt_tokens":{prompt},"completion_tokens":{answer_tokens},"total_tokens":{total}{details}}}"#
    )
}
