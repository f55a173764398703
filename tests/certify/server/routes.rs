//! The routes of the server.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::completions::Call;
use super::http::{self, After};
use super::kinds::{Flush, Refusals};
use super::log::Asked;
use super::{Door, Inside, front, hostile, metrics, model, params};

/// Answers a request, and says what becomes of the connection.
pub(super) fn answer(
    inside: &Arc<Inside>,
    door: Door,
    method: &str,
    asked: &Asked,
    body: &[u8],
    output: &mut TcpStream,
) -> io::Result<After> {
    let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
    let fields = &asked.body;
    let wanted = inside.faults.needs_query.is_none_or(|part| query.split('&').any(|p| p == part));
    let metrics_here = door == Door::Metrics || !inside.faults.metrics_elsewhere;
    match (method, path) {
        _ if !wanted => error(output, 404, "no such route", "")?,
        ("GET", "/metrics") if metrics_here => {
            if !metrics::answer(inside, output)? {
                error(output, 404, "no such route", "")?;
            }
        }
        _ if door == Door::Metrics => error(output, 404, "no such route", "")?,
        ("POST", "/v1/completions") if !inside.faults.chat_only => {
            return completion(inside, asked, body, false, output);
        }
        ("POST", "/v1/chat/completions") => return completion(inside, asked, body, true, output),
        ("GET", "/v1/models") => {
            let (length, owner) = (inside.faults.context_tokens_max, inside.faults.owned_by);
            let model = json!({
                "id": "fake", "object": "model", "owned_by": owner, "max_model_len": length,
            });
            json_body(output, 200, &json!({ "object": "list", "data": [model] }))?;
        }
        ("GET", "/health") => http::respond(output, 200, "text/plain", "", b"")?,
        ("GET", "/version") => json_body(output, 200, &json!({ "version": "0.0-fake" }))?,
        ("POST", "/tokenize") => {
            let text = fields["prompt"].as_str().or(fields["content"].as_str()).unwrap_or("");
            let tokens = model::tokenize(text);
            json_body(output, 200, &json!({ "count": tokens.len(), "tokens": tokens }))?;
        }
        ("POST", "/detokenize") => {
            let ids: Vec<u32> =
                serde_json::from_value(fields["tokens"].clone()).unwrap_or_default();
            let known: Vec<u32> = ids.into_iter().filter(|&id| id < model::VOCABULARY).collect();
            json_body(output, 200, &json!({ "prompt": model::text(&known) }))?;
        }
        ("POST", "/reset_prefix_cache" | "/flush_cache") => return flush(inside, output),
        _ => error(output, 404, "no such route", "")?,
    }
    Ok(After::GoesOn)
}

fn json_body(output: &mut TcpStream, status: u16, body: &Value) -> io::Result<()> {
    http::respond(output, status, "application/json", "", body.to_string().as_bytes())
}

fn error(output: &mut TcpStream, status: u16, message: &str, extra: &str) -> io::Result<()> {
    let body = json!({
        "error": { "message": message, "type": "invalid_request_error", "code": status },
    });
    http::respond(output, status, "application/json", extra, body.to_string().as_bytes())
}

fn completion(
    inside: &Arc<Inside>,
    asked: &Asked,
    body: &[u8],
    chat: bool,
    output: &mut TcpStream,
) -> io::Result<After> {
    let in_flight = inside.in_flight.fetch_add(1, Ordering::SeqCst);
    let done = complete(inside, asked, body, chat, in_flight, output);
    inside.in_flight.fetch_sub(1, Ordering::SeqCst);
    done
}

fn complete(
    inside: &Arc<Inside>,
    asked: &Asked,
    body: &[u8],
    chat: bool,
    in_flight: usize,
    output: &mut TcpStream,
) -> io::Result<After> {
    let faults = &inside.faults;
    let number = inside.completions.fetch_add(1, Ordering::SeqCst);
    if faults.dies_after.is_some_and(|after| number >= after) {
        inside.die();
        return Ok(After::Closes);
    }
    if let Some(ms) = faults.dies_after_ms.filter(|_| number == 0) {
        let inside = Arc::clone(inside);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(ms));
            inside.die();
        });
    }
    if let Some(kind) = faults.hostile.filter(|_| number >= faults.hostile_after) {
        return hostile::answer(kind, output, &inside.stopped);
    }
    let refused = match faults.refusals {
        Refusals::Never => false,
        Refusals::Every(nth) => number % nth == nth - 1,
        Refusals::Above(most) | Refusals::Unavailable(most) => in_flight >= most,
        Refusals::After(count) => number >= count,
    };
    if refused {
        match faults.refusals {
            Refusals::Unavailable(_) => error(output, 503, "the server is busy", "")?,
            _ => error(output, 429, "too many requests", "retry-after: 1\r\n")?,
        }
        return Ok(After::GoesOn);
    }
    let params = match params::parse(&asked.body, faults, number, chat) {
        Ok(params) => Arc::new(params),
        Err(message) => {
            error(output, 400, &message, "")?;
            return Ok(After::GoesOn);
        }
    };
    let placed = inside.replicas.place(number, asked);
    let (engine, replica) = (placed.engine(), placed.name());
    let call = Call { engine, faults, params, number, replica };
    front::pass(&inside.gateway, &call, body, output)
}

fn flush(inside: &Inside, output: &mut TcpStream) -> io::Result<After> {
    match inside.faults.flush {
        Flush::Works => {
            inside.replicas.engines().iter().for_each(|engine| engine.empty_cache());
            http::respond(output, 200, "text/plain", "", b"")?;
        }
        Flush::Refused => error(output, 400, "requests are running", "")?,
        Flush::Hangs => {
            while !inside.stopped.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(20));
            }
            return Ok(After::Closes);
        }
    }
    Ok(After::GoesOn)
}
