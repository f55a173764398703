//! `/metrics`: how many requests run and wait, and what the prefix cache had.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use super::Inside;
use super::http;
use super::kinds::Gauge;

const VLLM: [&str; 2] = ["vllm:num_requests_running", "vllm:num_requests_waiting"];

/// Answers with the metrics; false where there are none.
pub(crate) fn answer(inside: &Inside, output: &mut TcpStream) -> io::Result<bool> {
    let engines = inside.replicas.engines();
    let loads = engines.iter().map(|engine| engine.load());
    let (mut running, mut waiting) =
        loads.fold((0, 0), |sum, load| (sum.0 + load.0, sum.1 + load.1));
    let names = match inside.faults.gauge {
        Gauge::Missing => return Ok(false),
        Gauge::Stuck => {
            (running, waiting) = (0, 0);
            VLLM
        }
        Gauge::Lying => {
            let taken = inside.in_flight.load(Ordering::SeqCst);
            (running, waiting) = (taken + inside.faults.strangers, 0);
            VLLM
        }
        Gauge::Vllm => VLLM,
        Gauge::Sglang => ["sglang:num_running_reqs", "sglang:num_queue_reqs"],
        Gauge::LlamaCpp => ["llamacpp:requests_processing", "llamacpp:requests_deferred"],
    };
    let mut text = String::new();
    let mut write = |name: &str, kind: &str, help: &str, value: u64| {
        text.push_str(&format!("# HELP {name} {help}.\n# TYPE {name} {kind}\n"));
        text.push_str(&format!("{name}{{model_name=\"fake\"}} {value}.0\n"));
    };
    for (name, value) in names.iter().zip([running, waiting]) {
        write(name, "gauge", "Requests", value as u64);
    }
    if inside.faults.hit_counters {
        let counts = engines.iter().map(|engine| engine.cache_counts());
        let (queries, hits) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        write("vllm:prefix_cache_queries_total", "counter", "Tokens looked up", queries);
        write("vllm:prefix_cache_hits_total", "counter", "Tokens found", hits);
    }
    http::respond(output, 200, "text/plain; version=0.0.4", "", text.as_bytes())?;
    Ok(true)
}
