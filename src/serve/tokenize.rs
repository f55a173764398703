//! `/tokenize` and `/detokenize`, as vLLM has them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::answer::{aside, json};
use super::chat::conversation;
use super::error::ApiError;
use super::model::App;
use super::read;

#[derive(Serialize)]
struct Tokens {
    count: usize,
    max_model_len: usize,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Text {
    prompt: String,
}

pub(super) async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Response {
    match tokens(&app, request).await {
        Ok(tokens) => json(&tokens),
        Err(error) => error.into_response(),
    }
}

async fn tokens(app: &Arc<App>, request: Request) -> Result<Tokens, ApiError> {
    let mut fields = read::fields(request, &app.limits).await?;
    let tokens = move |app: &App| {
        app.read_model(&mut fields)?;
        let special_tokens = fields.get("add_special_tokens")?.unwrap_or(true);
        let text = match fields.get("prompt")? {
            Some(text) => text,
            None => conversation(fields.value("messages"))?,
        };
        let strings = fields.flag("return_token_strs")?;
        fields.end()?;
        let tokens = app.encode(&text, special_tokens)?;
        let names = app.names(false);
        let token_strs = strings.then(|| tokens.iter().map(|token| names.name(*token)).collect());
        Ok(Tokens { count: tokens.len(), max_model_len: app.positions_max, tokens, token_strs })
    };
    aside(app, tokens).await
}

pub(super) async fn detokenize(State(app): State<Arc<App>>, request: Request) -> Response {
    match text(&app, request).await {
        Ok(text) => json(&text),
        Err(error) => error.into_response(),
    }
}

async fn text(app: &Arc<App>, request: Request) -> Result<Text, ApiError> {
    let mut fields = read::fields(request, &app.limits).await?;
    let text = move |app: &App| {
        app.read_model(&mut fields)?;
        let missing = || ApiError::param("tokens", "tokens: expected token ids");
        let tokens: Vec<u32> = fields.get("tokens")?.ok_or_else(missing)?;
        fields.end()?;
        Ok(Text { prompt: app.decode(&tokens) })
    };
    aside(app, text).await
}
