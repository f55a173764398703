//! What clients may not do, and what becomes of those that try.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lockstep::contract::Mode;
use lockstep::serve::{Limits, Options, Server};
use serde_json::{Value, json};

use crate::client::{connect, exchange, get, message, post, read};
use crate::completions::complete;
use crate::{fixture, start, stop};

const PATH: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// The value of a metric.
pub(crate) fn metric(address: SocketAddr, name: &str) -> f64 {
    let text = get(address, "/metrics").body;
    let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Waits until a metric has this value.
pub(crate) fn wait_for(address: SocketAddr, name: &str, value: f64) {
    let begun = Instant::now();
    while metric(address, name) != value {
        assert!(begun.elapsed() < Duration::from_secs(60), "{name} is {}", metric(address, name));
        std::thread::sleep(Duration::from_millis(2));
    }
}

const RUNNING: &str = "vllm:num_requests_running";
const WAITING: &str = "vllm:num_requests_waiting";

/// A request that takes some time.
pub(crate) fn long() -> Value {
    json!({ "prompt": "long", "max_tokens": 1000, "ignore_eos": true, "seed": 1 })
}

pub(crate) fn wrong() {
    let running = start(Options { pool_blocks: Some(64), ..Options::default() });
    let address = running.address();
    for body in ["", "{", "[1]", "null", "{\"prompt\":\"\\ud800\"}", &"[".repeat(100_000)] {
        let answer = exchange(address, &message("POST", PATH, body));
        answer.error(400);
    }
    let prompt = "x";
    let cases = [
        (json!({}), "prompt"),
        (json!({ "prompt": "" }), "prompt"),
        (json!({ "prompt": [] }), "prompt"),
        (json!({ "prompt": [[]] }), "prompt"),
        (json!({ "prompt": 7 }), "prompt"),
        (json!({ "prompt": [1, "a"] }), "prompt"),
        (json!({ "prompt": [-1] }), "prompt"),
        (json!({ "prompt": vec!["a"; 65] }), "prompt"),
        (json!({ "prompt": prompt, "max_tokens": "5" }), "max_tokens"),
        (json!({ "prompt": prompt, "max_tokens": -5 }), "max_tokens"),
        (json!({ "prompt": prompt, "max_tokens": 0 }), "max_tokens"),
        (json!({ "prompt": prompt, "max_tokens": 257 }), "max_tokens"),
        (json!({ "prompt": prompt, "max_tokens": u32::MAX }), "max_tokens"),
        (json!({ "prompt": prompt, "temperature": -1 }), "temperature"),
        (json!({ "prompt": prompt, "temperature": "hot" }), "temperature"),
        (json!({ "prompt": prompt, "top_p": 0 }), "top_p"),
        (json!({ "prompt": prompt, "top_k": -2 }), "top_k"),
        (json!({ "prompt": prompt, "min_p": 1.5 }), "min_p"),
        (json!({ "prompt": prompt, "repetition_penalty": 0 }), "repetition_penalty"),
        (json!({ "prompt": prompt, "n": 0 }), "n"),
        (json!({ "prompt": prompt, "n": 4_000_000_000u32 }), "n"),
        (json!({ "prompt": [prompt, prompt], "n": 65 }), "n"),
        (json!({ "prompt": prompt, "seed": 1.5 }), "seed"),
        (json!({ "prompt": prompt, "stop": 5 }), "stop"),
        (json!({ "prompt": prompt, "stop": [5] }), "stop"),
        (json!({ "prompt": prompt, "stop_token_ids": "a" }), "stop_token_ids"),
        (json!({ "prompt": prompt, "logprobs": 21 }), "logprobs"),
        (json!({ "prompt": prompt, "logprobs": true }), "logprobs"),
        (json!({ "prompt": prompt, "stream": "yes" }), "stream"),
        (json!({ "prompt": prompt, "stream_options": {} }), "stream_options"),
        (json!({ "prompt": prompt, "stream": true, "stream_options": 3 }), "stream_options"),
        (json!({ "prompt": prompt, "cache_salt": "" }), "cache_salt"),
        (json!({ "prompt": prompt, "cache_salt": "s".repeat(257) }), "cache_salt"),
        (json!({ "prompt": prompt, "echo": 1 }), "echo"),
    ];
    for (body, param) in cases {
        let answer = post(address, PATH, &body);
        answer.error(400);
        assert_eq!(answer.json()["error"]["param"], param, "{body}: {}", answer.body);
    }
    // What the engine itself refuses has no parameter of its own.
    for body in [
        json!({ "prompt": [264] }),
        json!({ "prompt": prompt, "stop": [""] }),
        json!({ "prompt": prompt, "stop": vec!["a"; 65] }),
        json!({ "prompt": prompt, "stop_token_ids": [9999] }),
    ] {
        post(address, PATH, &body).error(400);
    }
    let code = post(address, PATH, &json!({ "prompt": "x".repeat(300) })).json();
    assert_eq!(code["error"]["code"], "context_length_exceeded");
    for body in [
        json!({}),
        json!({ "messages": "x" }),
        json!({ "messages": [{ "role": "user", "content": "x" }], "top_logprobs": 2 }),
        json!({ "messages": [{ "role": "user", "content": "x" }], "logprobs": 1 }),
        json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": 0 }),
    ] {
        post(address, CHAT, &body).error(400);
    }
    get(address, "/nothing").error(404);
    get(address, PATH).error(405);
    post(address, "/v1/models", &json!({})).error(405);
    // What is about the client is taken, and null is as good as nothing.
    let body =
        json!({ "prompt": "x", "user": "me", "flavour": null, "max_tokens": null, "stop": null });
    complete(address, body);
    stop(running);
}

pub(crate) fn unsupported() {
    let running = start(Options::default());
    let neutral = [
        ("presence_penalty", json!(0), json!(0.5)),
        ("frequency_penalty", json!(0.0), json!(-1)),
        ("logit_bias", json!({}), json!({ "50": 1 })),
        ("response_format", json!({ "type": "text" }), json!({ "type": "json_object" })),
        ("min_tokens", json!(0), json!(5)),
        ("guided_regex", json!(null), json!("a*")),
        ("use_beam_search", json!(false), json!(true)),
        ("skip_special_tokens", json!(false), json!(true)),
        ("repeat_penalty", json!(1.0), json!(1.1)),
        ("typical_p", json!(1), json!(0.5)),
        ("mirostat", json!(0), json!(2)),
        ("grammar", json!(""), json!("root ::= \"a\"")),
        // Known to nobody.
        ("flavour", json!(null), json!(0)),
    ];
    for (name, fine, other) in neutral {
        for (path, mut body) in [
            (PATH, json!({ "prompt": "x", "max_tokens": 1 })),
            (CHAT, json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": 1 })),
        ] {
            body[name] = fine.clone();
            post(running.address(), path, &body).ok();
            body[name] = other.clone();
            let answer = post(running.address(), path, &body);
            assert!(answer.error(400).contains("not supported"));
            assert_eq!(answer.json()["error"]["param"], name);
        }
    }
    for (name, value) in [("suffix", json!("end")), ("best_of", json!(4))] {
        let mut body = json!({ "prompt": "x" });
        body[name] = value;
        assert!(post(running.address(), PATH, &body).error(400).contains(name));
    }
    for (name, value) in
        [("tools", json!([{ "type": "function" }])), ("tool_choice", json!("auto"))]
    {
        let mut body = json!({ "messages": [{ "role": "user", "content": "x" }] });
        body[name] = value;
        assert!(post(running.address(), CHAT, &body).error(400).contains(name));
    }
    stop(running);
}

pub(crate) fn bodies() {
    let limits =
        Limits { body_bytes_max: 1000, body_timeout: Duration::from_secs(1), ..Limits::default() };
    let running = start(Options { limits, ..Options::default() });
    let address = running.address();
    let of = |bytes: usize| {
        let empty = json!({ "prompt": "x", "user": "" }).to_string().len();
        json!({ "prompt": "x", "user": "u".repeat(bytes - empty) }).to_string()
    };
    exchange(address, &message("POST", PATH, &of(1000))).ok();
    for bytes in [1001, 3000, 100_000] {
        exchange(address, &message("POST", PATH, &of(bytes))).error(413);
    }
    // The same in chunks, with no length said beforehand.
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let chunked = |body: &str| format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    exchange(address, &chunked(&of(1000))).ok();
    exchange(address, &chunked(&of(1001))).error(413);
    // A body that does not come.
    let whole = message("POST", PATH, &of(500));
    let mut stream = connect(address);
    stream.write_all(&whole.as_bytes()[..whole.len() - 100]).unwrap();
    let begun = Instant::now();
    read(&mut stream).unwrap().error(408);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    stop(running);
}

pub(crate) fn heads() {
    let limits = Limits { head_timeout: Duration::from_millis(300), ..Limits::default() };
    let running = start(Options { limits, ..Options::default() });
    // One that drips, one that says nothing, one that is idle after a request.
    let mut slow = connect(running.address());
    let mut silent = connect(running.address());
    let mut idle = connect(running.address());
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let begun = Instant::now();
    slow.write_all(b"GET /health HTTP/1.1\r\n").unwrap();
    let mut left = false;
    for i in 0..200 {
        std::thread::sleep(Duration::from_millis(20));
        if slow.write_all(format!("X-{i}: y\r\n").as_bytes()).is_err() {
            left = true;
            break;
        }
    }
    assert!(left, "a head that drips is waited for");
    for stream in [&mut silent, &mut idle] {
        let mut rest = Vec::new();
        // Closed, whether politely or not.
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(get(running.address(), "/health").status, 200);
    stop(running);
}

pub(crate) fn queue() {
    let limits = Limits { running_max: 1, waiting_max: 1, ..Limits::default() };
    let running = start(Options { limits, ..Options::default() });
    let address = running.address();
    let mut body = long();
    body["n"] = 8.into();
    let body = &body;
    std::thread::scope(|scope| {
        let first = scope.spawn(move || post(address, PATH, body));
        wait_for(address, RUNNING, 8.0);
        let second = scope.spawn(move || post(address, PATH, body));
        wait_for(address, WAITING, 8.0);
        let answer = post(address, PATH, body);
        answer.error(429);
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
        let [first, second] = [first, second].map(|thread| thread.join().unwrap().ok());
        assert_eq!(first["choices"], second["choices"]);
    });
    assert_eq!(metric(address, "lockstep:requests_refused_total"), 1.0);
    complete(address, json!({ "prompt": "x" }));
    stop(running);
}

pub(crate) fn time() {
    let limits = Limits { request_timeout: Duration::from_millis(30), ..Limits::default() };
    let running = start(Options { limits, ..Options::default() });
    let address = running.address();
    let mut body = long();
    body["n"] = 16.into();
    post(address, PATH, &body).error(504);
    body["stream"] = true.into();
    let answer = post(address, PATH, &body);
    let last: Value = serde_json::from_str(answer.events().last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "timeout");
    assert!(answer.is_whole);
    wait_for(address, RUNNING, 0.0);
    assert_eq!(metric(address, WAITING), 0.0);
    stop(running);
}

/// A client that asks for much and reads nothing is left alone after a while, and its request ends.
pub(crate) fn writes() {
    let limits = Limits { write_timeout: Duration::from_millis(300), ..Limits::default() };
    let running = start(Options { limits, ..Options::default() });
    let address = running.address();
    let mut body = long();
    // Much is written: many choices, with many alternatives.
    for (name, value) in [("n", json!(64)), ("logprobs", json!(20)), ("stream", json!(true))] {
        body[name] = value;
    }
    let mut stream = connect(address);
    stream.write_all(message("POST", PATH, &body.to_string()).as_bytes()).unwrap();
    wait_for(address, "lockstep:requests_total", 1.0);
    wait_for(address, "lockstep:sequences_aborted_total", 64.0);
    drop(stream);
    stop(running);
}

pub(crate) fn leaving() {
    let running = start(Options::default());
    let address = running.address();
    for is_stream in [false, true] {
        let aborted = metric(address, "lockstep:sequences_aborted_total");
        let mut body = long();
        body["stream"] = is_stream.into();
        body["n"] = 2.into();
        let mut stream = connect(address);
        stream.write_all(message("POST", PATH, &body.to_string()).as_bytes()).unwrap();
        if is_stream {
            let mut some = [0; 300];
            stream.read_exact(&mut some).unwrap();
        } else {
            wait_for(address, RUNNING, 2.0);
        }
        assert!(metric(address, "vllm:kv_cache_usage_perc") > 0.0);
        drop(stream);
        wait_for(address, "lockstep:sequences_aborted_total", aborted + 2.0);
        wait_for(address, RUNNING, 0.0);
        assert_eq!(metric(address, "vllm:kv_cache_usage_perc"), 0.0);
    }
    stop(running);
    // One that waits has no news by which the engine could tell that nobody is there.
    let limits = Limits { running_max: 1, ..Limits::default() };
    let running = start(Options { limits, ..Options::default() });
    let address = running.address();
    let [mut first, mut second] = [connect(address), connect(address)];
    let mut body = long();
    body["n"] = 32.into();
    let message = message("POST", PATH, &body.to_string());
    first.write_all(message.as_bytes()).unwrap();
    wait_for(address, RUNNING, 32.0);
    second.write_all(message.as_bytes()).unwrap();
    wait_for(address, WAITING, 32.0);
    drop(second);
    wait_for(address, WAITING, 0.0);
    assert_eq!(metric(address, RUNNING), 32.0, "the first is not done yet");
    drop(first);
    stop(running);
}

/// A request of many long prompts takes as many steps as it needs, and its answers are those of one step.
pub(crate) fn rows() {
    let answers = [1, 7, 4096].map(|step_rows_max| {
        let limits = Limits { step_rows_max, ..Limits::default() };
        let running = start(Options { limits, ..Options::default() });
        let prompts: Vec<Vec<u32>> =
            (0..6u32).map(|i| (0..90).map(|j| 5 + (i * 31 + j * 7) % 200).collect()).collect();
        let body = json!({ "prompt": prompts, "max_tokens": 5, "temperature": 0, "logprobs": 3,
            "return_tokens_as_token_ids": true, "echo": true });
        let answer = complete(running.address(), body);
        stop(running);
        answer["choices"].clone()
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[1], answers[2]);
    let none = Limits { step_rows_max: 0, ..Limits::default() };
    let refused =
        Server::start(fixture(Mode::Invariant), Options { limits: none, ..Options::default() });
    let Err(why) = refused else { panic!("a server of no rows") };
    assert!(why.to_string().contains("rows of a step is 0"), "{why}");
}

pub(crate) fn metrics() {
    let running = start(Options::default());
    let address = running.address();
    assert_eq!(get(address, "/health").status, 200);
    let body =
        json!({ "prompt": (0..9).collect::<Vec<u32>>(), "max_tokens": 7, "ignore_eos": true });
    complete(address, body.clone());
    complete(address, body);
    let expected = [
        (RUNNING, 0.0),
        (WAITING, 0.0),
        ("vllm:kv_cache_usage_perc", 0.0),
        ("vllm:prompt_tokens_total", 18.0),
        ("vllm:generation_tokens_total", 14.0),
        ("vllm:prefix_cache_queries_total", 18.0),
        ("vllm:prefix_cache_hits_total", 8.0),
        ("lockstep:requests_total", 2.0),
        ("lockstep:sequences_finished_total", 2.0),
    ];
    for (name, value) in expected {
        assert_eq!(metric(address, name), value, "{name}");
    }
    let text = get(address, "/metrics").body;
    assert!(text.contains("# TYPE vllm:num_requests_running gauge\n"));
    assert!(text.contains("vllm:num_requests_running{model_name=\"tiny\"} 0\n"), "{text}");
    stop(running);
}
