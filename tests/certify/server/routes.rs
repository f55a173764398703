//! The routes of the server.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::completions::Call;
use super::faults::{Flush, Front, Gauge, Refusals};
use super::log::Asked;
use super::{Inside, front, hostile, http, model, params};

/// Answers a request, and says whether the connection may go on.
pub(super) fn answer(
    inside: &Inside,
    method: &str,
    asked: &Asked,
    body: &[u8],
    output: &mut TcpStream,
) -> io::Result<bool> {
    let path = asked.path.split('?').next().unwrap_or("");
    let fields = &asked.body;
    match (method, path) {
        ("POST", "/v1/completions") if !inside.faults.chat_only => {
            return completion(inside, asked, body, false, output);
        }
        ("POST", "/v1/chat/completions") => return completion(inside, asked, body, true, output),
        ("GET", "/v1/models") => {
            let length = inside.faults.context_tokens_max;
            let model = json!({
                "id": "fake", "object": "model", "owned_by": "test", "max_model_len": length,
            });
            json_body(output, 200, &json!({ "object": "list", "data": [model] }))?;
        }
        ("GET", "/metrics") => metrics(inside, output)?,
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
    Ok(true)
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
    inside: &Inside,
    asked: &Asked,
    body: &[u8],
    chat: bool,
    output: &mut TcpStream,
) -> io::Result<bool> {
    let in_flight = inside.in_flight.fetch_add(1, Ordering::SeqCst);
    let done = complete(inside, asked, body, chat, in_flight, output);
    inside.in_flight.fetch_sub(1, Ordering::SeqCst);
    done
}

fn complete(
    inside: &Inside,
    asked: &Asked,
    body: &[u8],
    chat: bool,
    in_flight: usize,
    output: &mut TcpStream,
) -> io::Result<bool> {
    let faults = &inside.faults;
    let number = inside.completions.fetch_add(1, Ordering::SeqCst);
    if let Some(kind) = faults.hostile.filter(|_| number >= faults.hostile_after) {
        return hostile::answer(kind, output, &inside.stopped);
    }
    let turn = match faults.front {
        Front::ReplicasByConnection => asked.connection,
        _ => number,
    };
    let engine = &inside.engines[turn as usize % inside.engines.len()];
    let refused = match faults.refusals {
        Refusals::Never => false,
        Refusals::Every(nth) => number % nth == nth - 1,
        Refusals::Above(most) => in_flight >= most,
        Refusals::After(count) => number >= count,
    };
    if refused {
        error(output, 429, "too many requests", "retry-after: 1\r\n")?;
        return Ok(true);
    }
    let params = match params::parse(&asked.body, faults, number, chat) {
        Ok(params) => Arc::new(params),
        Err(message) => {
            error(output, 400, &message, "")?;
            return Ok(true);
        }
    };
    let call = Call { engine, faults, params, number };
    front::pass(&inside.gateway, &call, body, output)?;
    Ok(true)
}

fn metrics(inside: &Inside, output: &mut TcpStream) -> io::Result<()> {
    let loads = inside.engines.iter().map(|engine| engine.load());
    let (mut running, mut waiting) =
        loads.fold((0, 0), |sum, load| (sum.0 + load.0, sum.1 + load.1));
    let names = match inside.faults.gauge {
        Gauge::Missing => return error(output, 404, "no such route", ""),
        Gauge::Stuck => {
            (running, waiting) = (0, 0);
            ["vllm:num_requests_running", "vllm:num_requests_waiting"]
        }
        Gauge::Vllm => ["vllm:num_requests_running", "vllm:num_requests_waiting"],
        Gauge::Sglang => ["sglang:num_running_reqs", "sglang:num_queue_reqs"],
        Gauge::LlamaCpp => ["llamacpp:requests_processing", "llamacpp:requests_deferred"],
    };
    let mut text = String::new();
    for (name, value) in names.iter().zip([running, waiting]) {
        text.push_str(&format!("# HELP {name} Requests.\n# TYPE {name} gauge\n"));
        text.push_str(&format!("{name}{{model_name=\"fake\"}} {value}.0\n"));
    }
    http::respond(output, 200, "text/plain; version=0.0.4", "", text.as_bytes())
}

fn flush(inside: &Inside, output: &mut TcpStream) -> io::Result<bool> {
    match inside.faults.flush {
        Flush::Works => {
            inside.engines.iter().for_each(|engine| engine.empty_cache());
            http::respond(output, 200, "text/plain", "", b"")?;
        }
        Flush::Refused => error(output, 400, "requests are running", "")?,
        Flush::Hangs => {
            while !inside.stopped.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(20));
            }
            return Ok(false);
        }
    }
    Ok(true)
}
