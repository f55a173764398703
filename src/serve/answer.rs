//! Answers on their way out: whole, or as a stream of server-sent events.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tokio_stream::Stream;

use super::error::ApiError;
use super::exchange::{Exchange, Kind, Piece, Plan};
use super::model::App;
use super::openai::fields::Fields;
use super::openai::wire::{Answer, ChatChoice, ChatPiece, Delta, Message, TextChoice, Usage};
use super::read;

/// Reads a request, begins what `plan` makes of it, and answers, in time.
pub(super) async fn respond(
    app: &Arc<App>,
    request: Request,
    plan: fn(&App, &mut Fields) -> Result<Plan, ApiError>,
) -> Response {
    match begin(app, request, plan).await {
        Ok(exchange) => answer(exchange, app.limits.request_timeout).await,
        Err(error) => error.into_response(),
    }
}

async fn begin(
    app: &Arc<App>,
    request: Request,
    plan: fn(&App, &mut Fields) -> Result<Plan, ApiError>,
) -> Result<Exchange, ApiError> {
    let mut fields = read::fields(request, &app.limits).await?;
    let planned = aside(app, move |app| {
        let plan = plan(app, &mut fields)?;
        fields.end()?;
        Ok(plan)
    });
    Exchange::begin(app, planned.await?)
}

/// Does what may take long, such as tokenising, off the threads that serve connections: they must not wait for it.
pub(super) async fn aside<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let app = Arc::clone(app);
    let done = tokio::task::spawn_blocking(move || work(&app)).await;
    done.unwrap_or_else(|error| match error.try_into_panic() {
        // It is counted where every panic of a request is.
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => Err(ApiError::failed(error.to_string())),
    })
}

async fn answer(exchange: Exchange, limit: Duration) -> Response {
    let deadline = Instant::now() + limit;
    if exchange.plan.asked.stream {
        return stream(exchange, deadline);
    }
    match timeout_at(deadline, whole(exchange)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => error.into_response(),
        Err(_) => ApiError::timeout().into_response(),
    }
}

/// An answer in JSON.
pub(super) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => typed(Body::from(text), "application/json"),
        Err(error) => ApiError::failed(error.to_string()).into_response(),
    }
}

/// A body of this media type.
pub(super) fn typed(body: Body, media_type: &'static str) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Waits for the whole answer.
async fn whole(mut exchange: Exchange) -> Result<Response, ApiError> {
    let choices = exchange.plan.prompts.len() * exchange.plan.asked.n as usize;
    let mut all: Vec<Option<Piece>> = (0..choices).map(|_| None).collect();
    while let Some(news) = exchange.ticket.next().await {
        let Some(piece) = exchange.piece(news)? else { continue };
        match &mut all[piece.index] {
            Some(choice) => choice.extend(piece),
            none => *none = Some(piece),
        }
    }
    if !exchange.ticket.is_done() {
        return Err(exchange.app.desk.gone());
    }
    let all = all.into_iter().flatten();
    let usage = Some(exchange.usage());
    Ok(match exchange.plan.kind {
        Kind::Completion => {
            json(&body(&exchange, "text_completion", all.map(text_choice).collect(), usage))
        }
        Kind::Chat => {
            let (prompt, choices): (Vec<_>, Vec<_>) = all.map(chat_choice).unzip();
            let whole = body(&exchange, "chat.completion", choices, usage);
            json(&Answer { prompt_token_ids: prompt.into_iter().flatten().next(), ..whole })
        }
    })
}

fn body<'a, C>(
    exchange: &'a Exchange,
    object: &'static str,
    choices: Vec<C>,
    usage: Option<Usage>,
) -> Answer<'a, C> {
    Answer {
        id: &exchange.id,
        object,
        created: exchange.created,
        model: &exchange.app.name,
        system_fingerprint: &exchange.app.fingerprint,
        choices,
        usage,
        prompt_token_ids: None,
    }
}

fn text_choice(piece: Piece) -> TextChoice {
    TextChoice {
        index: piece.index,
        text: piece.text,
        logprobs: piece.logprobs,
        finish_reason: piece.finish_reason,
        stop_reason: piece.stop_reason,
        prompt_token_ids: piece.prompt_token_ids,
        token_ids: piece.token_ids,
    }
}

/// A choice, and the ids of the prompt.
fn chat_choice(piece: Piece) -> (Option<Vec<u32>>, ChatChoice) {
    let choice = ChatChoice {
        index: piece.index,
        message: Message { role: "assistant", content: piece.text, refusal: None },
        logprobs: piece.chat_logprobs,
        finish_reason: piece.finish_reason,
        stop_reason: piece.stop_reason,
        token_ids: piece.token_ids,
    };
    (piece.prompt_token_ids, choice)
}

/// A piece, and the ids of the prompt with the first one.
fn chat_piece(piece: Piece) -> (Option<Vec<u32>>, ChatPiece) {
    let choice = ChatPiece {
        index: piece.index,
        delta: Delta { role: piece.is_first.then_some("assistant"), content: piece.text },
        logprobs: piece.chat_logprobs,
        finish_reason: piece.finish_reason,
        stop_reason: piece.stop_reason,
        token_ids: piece.token_ids,
    };
    (piece.prompt_token_ids, choice)
}

/// A stream: an event a token, then the usage if it is wanted, then the mark of its end. Where something goes wrong, the
/// last event is an error, and the mark does not come.
fn stream(exchange: Exchange, deadline: Instant) -> Response {
    let events =
        Events { exchange: Some(exchange), ready: None, deadline: Box::pin(sleep_until(deadline)) };
    let mut response = typed(Body::from_stream(events), "text/event-stream; charset=utf-8");
    let no_cache = HeaderValue::from_static("no-cache");
    response.headers_mut().insert(header::CACHE_CONTROL, no_cache);
    response
}

struct Events {
    /// Dropped with the last event: what is left of the request ends then.
    exchange: Option<Exchange>,
    /// The event after the one that was handed out.
    ready: Option<String>,
    deadline: Pin<Box<Sleep>>,
}

impl Events {
    /// The last event.
    fn end(&mut self, event: String) -> Poll<Option<Result<String, Infallible>>> {
        self.exchange = None;
        Poll::Ready(Some(Ok(event)))
    }
}

impl Stream for Events {
    type Item = Result<String, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(event) = self.ready.take() {
            return self.end(event);
        }
        loop {
            let late = self.deadline.as_mut().poll(context).is_ready();
            let Some(exchange) = &mut self.exchange else { return Poll::Ready(None) };
            if late {
                return self.end(event(&ApiError::timeout().json()));
            }
            let outcome = match exchange.ticket.poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(news)) => exchange.piece(news),
                Poll::Ready(None) if !exchange.ticket.is_done() => Err(exchange.app.desk.gone()),
                Poll::Ready(None) => {
                    let done = event("[DONE]");
                    if !exchange.plan.asked.include_usage {
                        return self.end(done);
                    }
                    let usage = usage_event(exchange);
                    self.ready = Some(done);
                    return Poll::Ready(Some(Ok(usage)));
                }
            };
            match outcome {
                Ok(Some(piece)) => return Poll::Ready(Some(Ok(piece_event(exchange, piece)))),
                Ok(None) => {}
                Err(error) => return self.end(event(&error.json())),
            }
        }
    }
}

fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

fn as_event(value: &impl Serialize) -> String {
    match serde_json::to_string(value) {
        Ok(json) => event(&json),
        Err(error) => event(&ApiError::failed(error.to_string()).json()),
    }
}

fn piece_event(exchange: &Exchange, piece: Piece) -> String {
    match exchange.plan.kind {
        Kind::Completion => {
            as_event(&body(exchange, "text_completion", vec![text_choice(piece)], None))
        }
        Kind::Chat => {
            let (prompt_token_ids, choice) = chat_piece(piece);
            let whole = body(exchange, "chat.completion.chunk", vec![choice], None);
            as_event(&Answer { prompt_token_ids, ..whole })
        }
    }
}

fn usage_event(exchange: &Exchange) -> String {
    let object = match exchange.plan.kind {
        Kind::Completion => "text_completion",
        Kind::Chat => "chat.completion.chunk",
    };
    as_event(&body(exchange, object, Vec::<TextChoice>::new(), Some(exchange.usage())))
}
