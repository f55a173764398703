//! The parameters of a request, as a tolerant server reads them.

use serde_json::Value;

use super::faults::Faults;
use super::kinds::{Cold, Echo, Ids, Parameters, Stream};
use super::model;

const TOKENS_MAX_DEFAULT: usize = 16;
const SAMPLES_MAX: usize = 16;
/// What the first interface had; extras came later.
const FIRST: [&str; 17] = [
    "model",
    "prompt",
    "suffix",
    "max_tokens",
    "temperature",
    "top_p",
    "n",
    "stream",
    "logprobs",
    "echo",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "best_of",
    "logit_bias",
    "user",
    "seed",
];
const CHAT: [&str; 3] = ["messages", "top_logprobs", "stream_options"];
/// What the chat route came to call `max_tokens`.
const LATER_TOKENS_MAX: &str = "max_completion_tokens";

pub(crate) struct Params {
    /// One or more.
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) answer_tokens_max: usize,
    pub(crate) answer_tokens_min: usize,
    pub(crate) ignores_end: bool,
    pub(crate) temperature: f64,
    pub(crate) seed: Option<u64>,
    pub(crate) samples: usize,
    /// Alternatives asked for.
    pub(crate) logprobs: Option<usize>,
    pub(crate) echo: bool,
    pub(crate) stream: bool,
    pub(crate) stream_usage: bool,
    pub(crate) returns_ids: bool,
    pub(crate) tokens_as_ids: bool,
    /// Of the prefix cache.
    pub(crate) salt: u64,
    /// Whether the prefix cache may be used.
    pub(crate) caches: bool,
    /// Whether the answer has the form of the chat route.
    pub(crate) chat: bool,
}

/// The parameters, or the message of a refusal.
pub(crate) fn parse(
    body: &Value,
    faults: &Faults,
    number: u64,
    chat: bool,
) -> Result<Params, String> {
    let Some(fields) = body.as_object() else { return Err("the body is no object".into()) };
    let refused = faults.refused_fields.iter().find(|name| fields.contains_key(**name));
    if let Some(name) = refused {
        return Err(match faults.refusals_name_fields {
            true => format!("{name} is not supported"),
            false => "bad request".into(),
        });
    }
    if chat && faults.wants_max_completion_tokens && fields.contains_key("max_tokens") {
        return Err("'max_tokens' is not supported with this model. Use 'max_completion_tokens' \
                    instead."
            .into());
    }
    if faults.parameters == Parameters::ExtrasRefused {
        let later = |name: &str| faults.wants_max_completion_tokens && name == LATER_TOKENS_MAX;
        let known =
            |name: &str| FIRST.contains(&name) || (chat && (CHAT.contains(&name) || later(name)));
        if let Some(name) = fields.keys().find(|name| !known(name)) {
            return Err(format!("unknown parameter: {name}"));
        }
    }
    let number_of = |name: &str| body[name].as_u64().map(|value| value as usize);
    let flag = |name: &str| body[name].as_bool().unwrap_or(false);
    let said = body["messages"][0]["content"].as_str().filter(|_| chat);
    let templated = said.map(|said| Value::String(format!("[user]{said}[answer]")));
    let mut prompts = prompts(templated.as_ref().unwrap_or(&body["prompt"]), faults)?;
    if faults.moving_template {
        let counter = model::tokenize(&format!("{}.", "1".repeat(1 + (number % 7) as usize)));
        prompts.iter_mut().for_each(|prompt| prompt.extend(&counter));
    }
    if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
        return Err("prompt is empty".into());
    }
    let later = number_of(LATER_TOKENS_MAX).filter(|_| chat);
    let answer_tokens_max = later.or(number_of("max_tokens")).unwrap_or(TOKENS_MAX_DEFAULT);
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    if longest + answer_tokens_max > faults.context_tokens_max {
        return Err(format!("maximum context length is {} tokens", faults.context_tokens_max));
    }
    if flag("echo") && faults.echo == Echo::Refused {
        return Err("echo is not supported".into());
    }
    let stream = flag("stream");
    if stream && faults.stream == Stream::Refused {
        return Err("stream is not supported".into());
    }
    let samples = number_of("n").unwrap_or(1);
    if !(1..=SAMPLES_MAX).contains(&samples) {
        return Err(format!("n must be in 1..={SAMPLES_MAX}"));
    }
    let salt = body["cache_salt"].as_str().filter(|_| faults.cold == Cold::Salt).unwrap_or("");
    let logprobs = match &body["logprobs"] {
        Value::Bool(true) => Some(number_of("top_logprobs").unwrap_or(0)),
        _ => number_of("logprobs"),
    };
    Ok(Params {
        prompts,
        answer_tokens_max,
        answer_tokens_min: number_of("min_tokens").unwrap_or(0),
        ignores_end: flag("ignore_eos"),
        temperature: body["temperature"].as_f64().unwrap_or(1.0),
        seed: body["seed"].as_u64(),
        samples,
        logprobs,
        echo: flag("echo"),
        stream,
        stream_usage: body["stream_options"]["include_usage"].as_bool().unwrap_or(false),
        returns_ids: flag("return_token_ids") && faults.ids != Ids::Nowhere,
        tokens_as_ids: flag("return_tokens_as_token_ids") && faults.ids != Ids::Nowhere,
        salt: salt.bytes().fold(0, |hash, byte| model::mix(hash ^ u64::from(byte))),
        caches: faults.cold != Cold::Prompt || body["cache_prompt"].as_bool() != Some(false),
        chat,
    })
}

/// The prompts of a request: one, or a list of them.
fn prompts(value: &Value, faults: &Faults) -> Result<Vec<Vec<u32>>, String> {
    match value {
        Value::Array(list) if list.iter().any(|one| one.is_string() || one.is_array()) => {
            if !faults.many_prompts {
                return Err("prompt must be one prompt".into());
            }
            list.iter().map(|one| prompt(one, faults)).collect()
        }
        one => Ok(vec![prompt(one, faults)?]),
    }
}

fn prompt(value: &Value, faults: &Faults) -> Result<Vec<u32>, String> {
    match value {
        Value::String(text) => {
            let mut tokens = model::tokenize(text);
            if faults.begins_text {
                tokens.insert(0, model::BEGIN);
            }
            Ok(tokens)
        }
        Value::Array(_) if faults.ids == Ids::Nowhere => Err("prompt must be a string".into()),
        Value::Array(ids) => ids
            .iter()
            .map(|id| id.as_u64().filter(|&id| id < u64::from(model::VOCABULARY)))
            .map(|id| id.map(|id| id as u32).ok_or("prompt holds no token id of the vocabulary"))
            .map(|id| id.map_err(String::from))
            .collect(),
        _ => Err("prompt must be a string or token ids".into()),
    }
}
