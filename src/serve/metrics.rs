//! `/health`, `/metrics` and `/v1/models`.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::answer::{json, typed};
use super::error::ApiError;
use super::model::App;

/// 200 while the engine takes requests.
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    match app.desk.is_open() {
        true => StatusCode::OK.into_response(),
        false => app.desk.gone().into_response(),
    }
}

/// Numbers in Prometheus's text format, under vLLM's names where it has them.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    typed(Body::from(text(&app)), "text/plain; version=0.0.4; charset=utf-8")
}

fn text(app: &App) -> String {
    let gauges = &app.desk.gauges;
    let (running, waiting) = gauges.load();
    let blocks = gauges.blocks.load(Relaxed).max(1) as f64;
    let used = gauges.blocks_used.load(Relaxed) as f64 / blocks;
    let counter = |n: &std::sync::atomic::AtomicU64| n.load(Relaxed) as f64;
    let prompt_tokens = counter(&gauges.prompt_tokens);
    let all = [
        ("vllm:num_requests_running", "gauge", "sequences that are resident", running as f64),
        ("vllm:num_requests_waiting", "gauge", "sequences that wait for it", waiting as f64),
        ("vllm:kv_cache_usage_perc", "gauge", "share of the KV blocks in use, 0 to 1", used),
        ("vllm:prompt_tokens_total", "counter", "prompt tokens taken in", prompt_tokens),
        (
            "vllm:generation_tokens_total",
            "counter",
            "tokens generated",
            counter(&gauges.generated_tokens),
        ),
        (
            "vllm:prefix_cache_queries_total",
            "counter",
            "tokens looked up in the prefix cache",
            prompt_tokens,
        ),
        (
            "vllm:prefix_cache_hits_total",
            "counter",
            "tokens found there",
            counter(&gauges.cached_tokens),
        ),
        ("lockstep:requests_total", "counter", "requests accepted", counter(&gauges.requests)),
        ("lockstep:requests_refused_total", "counter", "answered 429", counter(&gauges.refused)),
        (
            "lockstep:sequences_finished_total",
            "counter",
            "sequences that came to an end of their own",
            counter(&gauges.finished),
        ),
        (
            "lockstep:sequences_aborted_total",
            "counter",
            "sequences whose client went away",
            counter(&gauges.aborted),
        ),
    ];
    let model = app.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut text = String::new();
    for (name, kind, help, value) in all {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{model_name=\"{model}\"}} {value}\n"
        );
    }
    text
}

#[derive(Serialize)]
struct Models<'a> {
    object: &'static str,
    data: [Model<'a>; 1],
}

#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    root: &'a str,
    parent: Option<&'a str>,
    max_model_len: usize,
}

fn model(app: &App) -> Model<'_> {
    Model {
        id: &app.name,
        object: "model",
        created: app.created,
        owned_by: "lockstep",
        root: &app.name,
        parent: None,
        max_model_len: app.positions_max,
    }
}

pub(super) async fn models(State(app): State<Arc<App>>) -> Response {
    json(&Models { object: "list", data: [model(&app)] })
}

pub(super) async fn one_model(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    match name == app.name {
        true => json(&model(&app)),
        false => ApiError::no_such_model(&name).into_response(),
    }
}
