//! Parameters that completions and chat have in common.

use serde_json::Value;

use crate::contract::sampler::SamplerParams;

use super::super::error::ApiError;
use super::super::limits::SALT_BYTES_MAX;
use super::fields::{Fields, Neutral};

/// What a client asks for, whatever the prompt is.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Asked {
    pub(in crate::serve) sampling: SamplerParams,
    pub(in crate::serve) seed: Option<u64>,
    pub(in crate::serve) n: u32,
    pub(in crate::serve) stop: Vec<String>,
    pub(in crate::serve) stop_token_ids: Vec<u32>,
    pub(in crate::serve) ignore_eos: bool,
    /// Keeps its prefix cache apart from that of others.
    pub(in crate::serve) cache_salt: Option<String>,
    pub(in crate::serve) stream: bool,
    /// Whether a stream ends with the usage.
    pub(in crate::serve) include_usage: bool,
    /// Whether token ids are returned.
    pub(in crate::serve) token_ids: bool,
    /// Whether tokens are called by their ids where they are named.
    pub(in crate::serve) named_by_id: bool,
    /// Whether the id that the model wants before a text is put there.
    pub(in crate::serve) special_tokens: Option<bool>,
}

/// Parameters that would change the result, and what of them asks for nothing.
const UNSUPPORTED: &[(&str, Neutral)] = &[
    ("presence_penalty", Neutral::Number(0.0)),
    ("frequency_penalty", Neutral::Number(0.0)),
    ("logit_bias", Neutral::Empty),
    ("response_format", Neutral::TextType),
    ("structured_outputs", Neutral::Null),
    ("guided_json", Neutral::Null),
    ("guided_regex", Neutral::Null),
    ("guided_choice", Neutral::Null),
    ("guided_grammar", Neutral::Null),
    ("min_tokens", Neutral::Number(0.0)),
    ("length_penalty", Neutral::Number(1.0)),
    ("use_beam_search", Neutral::Flag(false)),
    ("bad_words", Neutral::Empty),
    ("allowed_token_ids", Neutral::Null),
    ("logits_processors", Neutral::Empty),
    ("truncate_prompt_tokens", Neutral::Null),
    ("include_stop_str_in_output", Neutral::Flag(false)),
    ("skip_special_tokens", Neutral::Flag(false)),
    ("spaces_between_special_tokens", Neutral::Flag(false)),
    ("prompt_logprobs", Neutral::Null),
    ("prompt_embeds", Neutral::Null),
    ("kv_transfer_params", Neutral::Null),
    // Of other engines. The neutral values are those that llama.cpp's server documents.
    ("repeat_penalty", Neutral::Number(1.0)),
    ("typical_p", Neutral::Number(1.0)),
    ("top_n_sigma", Neutral::Number(-1.0)),
    ("dynatemp_range", Neutral::Number(0.0)),
    ("xtc_probability", Neutral::Number(0.0)),
    ("dry_multiplier", Neutral::Number(0.0)),
    ("mirostat", Neutral::Number(0.0)),
    ("grammar", Neutral::Empty),
    ("json_schema", Neutral::Empty),
    ("lora", Neutral::Empty),
];

impl Asked {
    /// Reads them.
    pub(in crate::serve) fn read(fields: &mut Fields) -> Result<Asked, ApiError> {
        fields.refuse(UNSUPPORTED)?;
        let top_k: Option<i64> = fields.get("top_k")?;
        let sampling = SamplerParams {
            temperature: fields.get("temperature")?.unwrap_or(1.0),
            top_k: match top_k.unwrap_or(0) {
                -1 => 0,
                k => u32::try_from(k).map_err(|_| {
                    ApiError::param("top_k", format!("top_k is {k}, must be -1 or more"))
                })?,
            },
            top_p: fields.get("top_p")?.unwrap_or(1.0),
            min_p: fields.get("min_p")?.unwrap_or(0.0),
            repetition_penalty: fields.get("repetition_penalty")?.unwrap_or(1.0),
        };
        sampling.validate().map_err(|why| match why.split(' ').next() {
            Some(name) if name.contains('_') || name == "temperature" => {
                ApiError::param(name, why.as_str())
            }
            _ => ApiError::bad(why),
        })?;
        let n = fields.get("n")?.unwrap_or(1);
        if n == 0 {
            return Err(ApiError::param("n", "n is 0, must be at least 1"));
        }
        let cache_salt: Option<String> = fields.get("cache_salt")?;
        if cache_salt.as_ref().is_some_and(|salt| salt.is_empty() || salt.len() > SALT_BYTES_MAX) {
            let why = format!("cache_salt is empty or longer than {SALT_BYTES_MAX} bytes");
            return Err(ApiError::param("cache_salt", why));
        }
        let stream = fields.flag("stream")?;
        Ok(Asked {
            sampling,
            seed: seed(fields)?,
            n,
            stop: stop(fields)?,
            stop_token_ids: fields.get("stop_token_ids")?.unwrap_or_default(),
            ignore_eos: fields.flag("ignore_eos")?,
            cache_salt,
            stream,
            include_usage: include_usage(fields, stream)?,
            token_ids: fields.flag("return_token_ids")?,
            named_by_id: fields.flag("return_tokens_as_token_ids")?,
            special_tokens: fields.get("add_special_tokens")?,
        })
    }
}

/// A seed is any integer of 64 bits, signed or not.
fn seed(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    let Some(value) = fields.value("seed") else { return Ok(None) };
    let seed = value.as_u64().or(value.as_i64().map(i64::cast_unsigned));
    seed.map(Some).ok_or_else(|| ApiError::param("seed", "seed: expected an integer of 64 bits"))
}

/// Stop strings: one, or a list.
fn stop(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    match fields.value("stop") {
        None => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one]),
        Some(list) => serde_json::from_value(list)
            .map_err(|_| ApiError::param("stop", "stop: expected a string or a list of strings")),
    }
}

fn include_usage(fields: &mut Fields, stream: bool) -> Result<bool, ApiError> {
    let Some(options) = fields.value("stream_options") else { return Ok(false) };
    let wrong =
        |what: &str| Err(ApiError::param("stream_options", format!("stream_options{what}")));
    if !stream {
        return wrong(" is for streams only");
    }
    if !options.is_object() {
        return wrong(": expected an object");
    }
    match options.get("include_usage") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(include)) => Ok(*include),
        Some(_) => wrong(".include_usage: expected a boolean"),
    }
}
