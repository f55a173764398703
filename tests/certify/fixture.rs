//! The server by itself: what the other tests rely on.

mod cache;
mod crowds;
mod front;
mod wire;

use std::io::Read;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Alternatives, Faults, Front, Hostile, How, Server, When};

pub(crate) use cache::*;
pub(crate) use crowds::*;
pub(crate) use front::*;
pub(crate) use wire::*;

/// An answer of a server that refuses nothing.
fn ask(server: &Server, body: &Value) -> Value {
    let text = raw(server, body).expect("an answer");
    serde_json::from_str(&text).expect("JSON")
}

fn raw(server: &Server, body: &Value) -> Result<String, ureq::Error> {
    let url = format!("{}/v1/completions", server.url());
    ureq::post(url).send_json(body)?.body_mut().read_to_string()
}

/// Status, headers and body of an answer of any route, each request on a connection of its own.
fn post(
    server: &Server,
    route: &str,
    key: Option<&str>,
    body: &Value,
) -> Result<Answer, ureq::Error> {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(20)))
        .build();
    let mut request = config.new_agent().post(format!("{}{route}", server.url()));
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let mut answer = request.send_json(body)?;
    let replica = answer.headers().get("x-replica").and_then(|name| name.to_str().ok());
    let replica = replica.map(str::to_string);
    let status = answer.status().as_u16();
    let body = answer.body_mut().read_to_string()?;
    Ok(Answer { status, replica, body })
}

struct Answer {
    status: u16,
    replica: Option<String>,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

/// The events of a stream, and whether it ended with its mark.
fn events(body: &str) -> (Vec<Value>, bool) {
    let mut events = Vec::new();
    for event in body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")) {
        if event == "[DONE]" {
            return (events, true);
        }
        events.push(serde_json::from_str(event).expect("JSON"));
    }
    (events, false)
}

/// The body of a streamed answer, as far as it came.
fn streamed(server: &Server, body: &Value) -> String {
    let mut body = body.clone();
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    raw(server, &body).expect("an answer")
}

/// Does something while a request of another's decodes, and waits until that is gone.
fn with_company<T>(server: &Server, act: impl FnOnce() -> T) -> T {
    let before = server.running();
    let mut body = request(&[9, 9, 9]);
    body["max_tokens"] = json!(2000);
    body["stream"] = json!(true);
    let url = format!("{}/v1/completions", server.url());
    let mut other = ureq::post(url).send_json(&body).expect("an answer");
    let mut events = other.body_mut().as_reader();
    // The first token: its prompt has been read.
    events.read_exact(&mut [0; 16]).expect("an event");
    let out = act();
    drop(other);
    while server.running() > before {
        thread::sleep(Duration::from_millis(1));
    }
    out
}

/// Numbers of the metrics, by the starts of their lines.
fn metrics(server: &Server, names: [&str; 2]) -> [Option<f64>; 2] {
    let mut answer = ureq::get(server.metrics_url()).call().expect("metrics");
    let text = answer.body_mut().read_to_string().expect("text");
    names.map(|name| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")))?;
        line.rsplit(' ').next()?.parse().ok()
    })
}

/// A prompt of so many tokens; another start, another prompt from the first token on.
fn prompt(start: u32, tokens: u32) -> Vec<u32> {
    (0..tokens).map(|at| 1 + (start * 37 + at * 7) % 250).collect()
}

fn request(prompt: &[u32]) -> Value {
    json!({
        "model": "fake", "prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 3,
        "ignore_eos": true, "return_token_ids": true,
    })
}

fn ids(answer: &Value) -> Vec<u32> {
    serde_json::from_value(answer["choices"][0]["token_ids"].clone()).expect("token ids")
}

fn crowd(server: &Server, count: u32) -> Vec<Value> {
    thread::scope(|scope| {
        let asked: Vec<_> = (0..count)
            .map(|at| scope.spawn(move || ask(server, &request(&[1, 2, 3, 4, at]))))
            .collect();
        asked.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// A server with no fault: a crowd gets the bits that each of it gets alone, and did meet.
pub(crate) fn without_a_fault_a_crowd_gets_the_answers_of_each_alone() {
    let server = Server::start(Faults::default());
    let together = crowd(&server, 12);
    assert!(server.running_max() > 1, "the crowd met");
    for (at, answer) in together.iter().enumerate() {
        let alone = ask(&server, &request(&[1, 2, 3, 4, at as u32]));
        assert_eq!(alone["choices"], answer["choices"]);
        assert_eq!(ids(&alone).len(), 12);
    }
}

/// Each fault that needs company shows in a crowd, and in no request alone.
pub(crate) fn a_fault_of_crowds_shows_in_crowds_alone() {
    for how in [How::Drift(1e-4), How::Foreign, How::Twin, How::Shorter, How::FinishReason] {
        let server = Server::start(Faults::disturbed(When::InFlight(2), how));
        let alone: Vec<Value> =
            (0..8).map(|at| ask(&server, &request(&[1, 2, 3, 4, at]))).collect();
        let again: Vec<Value> =
            (0..8).map(|at| ask(&server, &request(&[1, 2, 3, 4, at]))).collect();
        let together = crowd(&server, 8);
        let differ = |others: &[Value]| {
            alone.iter().zip(others).filter(|pair| pair.0["choices"] != pair.1["choices"]).count()
        };
        assert_eq!(differ(&again), 0, "{how:?}");
        assert!(differ(&together) > 0, "{how:?}");
    }
}

/// The joined events of a stream are the plain answer.
pub(crate) fn a_stream_gives_the_plain_answer() {
    let server = Server::start(Faults::default());
    let body = request(&[5, 6, 7, 200, 201]);
    let plain = ask(&server, &body);
    let (events, done) = events(&streamed(&server, &body));
    assert!(done);
    let (mut text, mut tokens, mut values) = (String::new(), Vec::new(), Vec::new());
    for choice in events.iter().filter_map(|event| event["choices"].get(0)) {
        text.push_str(choice["text"].as_str().expect("text"));
        tokens.extend(choice["token_ids"].as_array().expect("ids").iter().cloned());
        values.extend(choice["logprobs"]["token_logprobs"].as_array().expect("some").clone());
    }
    let choice = &plain["choices"][0];
    assert_eq!(choice["text"], json!(text));
    assert_eq!(choice["token_ids"], json!(tokens));
    assert_eq!(choice["logprobs"]["token_logprobs"], json!(values));
    assert_eq!(events.last().expect("usage")["usage"], plain["usage"]);
}

/// Prompt scores are the decimals of the same tokens when they were generated.
pub(crate) fn a_prompt_is_scored_as_it_was_generated() {
    let server = Server::start(Faults::default());
    let prompt = [9, 8, 7, 6];
    let generated = ask(&server, &request(&prompt));
    let mut whole = prompt.to_vec();
    whole.extend(ids(&generated));
    let mut body = request(&whole);
    body["echo"] = json!(true);
    body["max_tokens"] = json!(0);
    let scored = ask(&server, &body);
    let of = |answer: &Value| answer["choices"][0]["logprobs"]["token_logprobs"].clone();
    let scored = of(&scored);
    assert!(scored[0].is_null());
    assert_eq!(scored.as_array().unwrap()[prompt.len()..], *of(&generated).as_array().unwrap());
}

/// A prompt sent again comes from the cache in whole blocks; under another salt it does not.
pub(crate) fn the_cache_of_prefixes_counts_blocks() {
    let server = Server::start(Faults::default());
    let prompt: Vec<u32> = (0..40).collect();
    let cached = |body: &Value| {
        ask(&server, body)["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64()
    };
    let mut body = request(&prompt);
    assert_eq!(cached(&body), Some(0));
    assert_eq!(cached(&body), Some(32));
    body["cache_salt"] = json!("other");
    assert_eq!(cached(&body), Some(0));
}

/// A gateway that caches gives the stored answer; one with fresh ids leaves out the usage.
pub(crate) fn gateways_give_stored_answers() {
    let mut faults = Faults { front: Front::Cache, ..Faults::default() };
    let server = Server::start(faults.clone());
    let body = request(&[1, 2, 3]);
    assert_eq!(raw(&server, &body).unwrap(), raw(&server, &body).unwrap());
    faults.front = Front::CacheFreshIds;
    let server = Server::start(faults);
    let (first, second) = (ask(&server, &body), ask(&server, &body));
    assert_ne!(first["id"], second["id"]);
    assert_eq!(first["choices"], second["choices"]);
    assert!(first["usage"].is_object() && second["usage"].is_null());
}

/// Values that JSON does not have are sent as some servers send them.
pub(crate) fn odd_values_of_alternatives_go_over_the_wire() {
    let server =
        Server::start(Faults { alternatives: Alternatives::OddValues, ..Faults::default() });
    let answers: String =
        (0..3).map(|_| raw(&server, &request(&[1, 2, 3])).expect("an answer")).collect();
    for odd in [":null", ":-9999.0", ":-Infinity"] {
        assert!(answers.contains(odd), "{odd}");
    }
}

/// A hostile server is hostile from the request on from which it is meant to be.
pub(crate) fn a_server_turns_hostile_when_it_is_told_to() {
    let faults =
        Faults { hostile: Some(Hostile::ResetInBody), hostile_after: 1, ..Faults::default() };
    let server = Server::start(faults);
    assert!(raw(&server, &request(&[1])).is_ok());
    assert!(raw(&server, &request(&[1])).is_err());
}
