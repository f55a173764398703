//! `/v1/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;

use crate::workload::LOGPROBS_MAX;

use super::answer::respond;
use super::error::ApiError;
use super::exchange::{Kind, Plan, Prompt};
use super::limits::PROMPTS_MAX;
use super::model::App;
use super::openai::asked::Asked;
use super::openai::fields::{Fields, Neutral};

/// Tokens that are generated unless a number is given, as the protocol says.
const MAX_TOKENS: usize = 16;

pub(super) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    respond(&app, request, plan).await
}

fn plan(app: &App, fields: &mut Fields) -> Result<Plan, ApiError> {
    app.read_model(fields)?;
    fields.refuse(&[("suffix", Neutral::Empty), ("best_of", Neutral::Number(1.0))])?;
    let asked = Asked::read(fields)?;
    let prompts = prompts(app, fields.value("prompt"), asked.special_tokens.unwrap_or(true))?;
    let logprobs: Option<u32> = fields.get("logprobs")?;
    if logprobs.is_some_and(|n| n > LOGPROBS_MAX) {
        let why = format!("logprobs is more than {LOGPROBS_MAX}");
        return Err(ApiError::param("logprobs", why));
    }
    let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(0);
    let usual = (app.positions_max + 1).saturating_sub(longest).clamp(1, MAX_TOKENS);
    let max_tokens = fields.get("max_tokens")?.unwrap_or(usual as u32);
    Ok(Plan {
        kind: Kind::Completion,
        asked,
        prompts,
        max_tokens: Some(max_tokens),
        echo: fields.flag("echo")?,
        logprobs,
        end_of_turn: None,
    })
}

/// A text, token ids, or a list of either.
fn prompts(app: &App, value: Option<Value>, special_tokens: bool) -> Result<Vec<Prompt>, ApiError> {
    let wrong = || {
        let why = "prompt: expected a text, token ids, or a list of either";
        ApiError::param("prompt", why)
    };
    let of_text = |text: String| {
        let ids = app.encode(&text, special_tokens)?;
        let has_bos = special_tokens && app.served.bos().is_some();
        Ok(Prompt { ids, text, has_bos })
    };
    let of_ids = |ids: Vec<u32>| {
        let text = app.decode(&ids);
        Ok(Prompt { ids, text, has_bos: false })
    };
    let list = match value.ok_or_else(wrong)? {
        Value::String(text) => return Ok(vec![full(of_text(text)?)?]),
        Value::Array(list) => list,
        _ => return Err(wrong()),
    };
    if list.first().is_some_and(Value::is_number) {
        let ids = serde_json::from_value(Value::Array(list)).map_err(|_| wrong())?;
        return Ok(vec![full(of_ids(ids)?)?]);
    }
    if list.is_empty() || list.len() > PROMPTS_MAX {
        let why = format!("{} prompts, expected 1 to {PROMPTS_MAX}", list.len());
        return Err(ApiError::param("prompt", why));
    }
    let one = |value| match value {
        Value::String(text) => full(of_text(text)?),
        value => full(of_ids(serde_json::from_value(value).map_err(|_| wrong())?)?),
    };
    list.into_iter().map(one).collect()
}

/// A prompt that has a token.
pub(super) fn full(prompt: Prompt) -> Result<Prompt, ApiError> {
    match prompt.ids.is_empty() {
        true => Err(ApiError::param("prompt", "the prompt has no tokens")),
        false => Ok(prompt),
    }
}
