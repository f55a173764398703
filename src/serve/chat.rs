//! `/v1/chat/completions`.
//!
//! There is one template, ChatML, whatever the model: a line with the role behind `<|im_start|>`, the text, and
//! `<|im_end|>`. Nothing is added to a conversation, no system prompt and no date, so the same messages are the same
//! tokens on any day. `<|im_end|>` ends an answer unless `ignore_eos` is set.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;

use crate::workload::LOGPROBS_MAX;

use super::answer::respond;
use super::completions::full;
use super::error::ApiError;
use super::exchange::{Kind, Plan, Prompt};
use super::limits::MESSAGES_MAX;
use super::model::App;
use super::openai::asked::Asked;
use super::openai::fields::{Fields, Neutral};

/// What ends a message.
const END_OF_TURN: &str = "<|im_end|>";

/// Parameters of chats that would change the result.
const UNSUPPORTED: &[(&str, Neutral)] = &[
    ("tools", Neutral::Empty),
    ("tool_choice", Neutral::Text("none")),
    ("functions", Neutral::Empty),
    ("function_call", Neutral::Text("none")),
    ("audio", Neutral::Null),
    ("prediction", Neutral::Null),
    ("reasoning_effort", Neutral::Text("none")),
    ("web_search_options", Neutral::Null),
    ("chat_template", Neutral::Null),
    ("chat_template_kwargs", Neutral::Empty),
    ("documents", Neutral::Empty),
    ("echo", Neutral::Flag(false)),
    ("add_generation_prompt", Neutral::Flag(true)),
    ("continue_final_message", Neutral::Flag(false)),
];

pub(super) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    respond(&app, request, plan).await
}

fn plan(app: &App, fields: &mut Fields) -> Result<Plan, ApiError> {
    app.read_model(fields)?;
    fields.refuse(UNSUPPORTED)?;
    let asked = Asked::read(fields)?;
    let text = conversation(fields.value("messages"))?;
    let special_tokens = asked.special_tokens.unwrap_or(true);
    let ids = app.encode(&text, special_tokens)?;
    let wants = fields.flag("logprobs")?;
    let top: Option<u32> = fields.get("top_logprobs")?;
    if top.is_some_and(|n| n > LOGPROBS_MAX || !wants) {
        let why = format!("top_logprobs is for logprobs: true, and at most {LOGPROBS_MAX}");
        return Err(ApiError::param("top_logprobs", why));
    }
    let newer = fields.get("max_completion_tokens")?;
    let max_tokens: Option<u32> = newer.or(fields.get("max_tokens")?);
    Ok(Plan {
        kind: Kind::Chat,
        asked,
        prompts: vec![full(Prompt { ids, text, has_bos: false })?],
        max_tokens,
        echo: false,
        logprobs: wants.then_some(top.unwrap_or(0)),
        end_of_turn: end_of_turn(app),
    })
}

/// The token that ends a message, if the vocabulary has one.
fn end_of_turn(app: &App) -> Option<u32> {
    let ids = app.served.tokenizer()?.encode(END_OF_TURN).ok()?;
    <[u32; 1]>::try_from(ids).ok().map(|[id]| id)
}

/// The text of a conversation, up to where the answer begins.
pub(super) fn conversation(messages: Option<Value>) -> Result<String, ApiError> {
    let wrong = |why: String| ApiError::param("messages", why);
    let Some(Value::Array(messages)) = messages else {
        return Err(wrong("messages: expected a list".into()));
    };
    if messages.is_empty() || messages.len() > MESSAGES_MAX {
        let have = messages.len();
        return Err(wrong(format!("{have} messages, expected 1 to {MESSAGES_MAX}")));
    }
    let mut text = String::new();
    for (i, message) in messages.iter().enumerate() {
        let role = match message.get("role").and_then(Value::as_str) {
            Some("developer") => "system",
            Some(role @ ("system" | "user" | "assistant")) => role,
            _ => {
                let why = "expected the role system, developer, user or assistant";
                return Err(wrong(format!("messages[{i}]: {why}")));
            }
        };
        let content = content(message)
            .ok_or_else(|| wrong(format!("messages[{i}]: expected content, text alone")))?;
        text.push_str(&format!("<|im_start|>{role}\n{content}{END_OF_TURN}\n"));
    }
    text.push_str("<|im_start|>assistant\n");
    Ok(text)
}

/// Text of a message: a string, or a list of parts that are text.
fn content(message: &Value) -> Option<String> {
    if message.get("tool_calls").is_some_and(|calls| !calls.is_null()) {
        return None;
    }
    match message.get("content")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts
            .iter()
            .map(|part| {
                let is_text = part.get("type").and_then(Value::as_str) == Some("text");
                part.get("text").and_then(Value::as_str).filter(|_| is_text)
            })
            .collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_conversation_is_its_messages_and_nothing_else() {
        let messages = json!([
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
            { "role": "assistant", "content": "" },
        ]);
        let text = conversation(Some(messages)).unwrap();
        assert_eq!(
            text,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nab<|im_end|>\n\
             <|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n"
        );
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for bad in [
            json!(null),
            json!([]),
            json!("hello"),
            json!(["hello"]),
            json!([{ "role": "user" }]),
            json!([{ "role": "robot", "content": "a" }]),
            json!([{ "role": "user", "content": null }]),
            json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": {} }] }]),
            json!([{ "role": "assistant", "content": "a", "tool_calls": [] }]),
        ] {
            let error = conversation(Some(bad.clone()).filter(|v| !v.is_null())).unwrap_err();
            assert!(error.json().contains(r#""param":"messages""#), "{bad}");
        }
    }
}
