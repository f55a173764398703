//! Many requests of every kind at once, well-behaved and not.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockstep::serve::{Limits, Options};
use serde_json::{Value, json};

use crate::client::{Answer, connect, get, message, post, read};
use crate::limits::{metric, wait_for};
use crate::{start, stop};

/// Requests in flight.
const CLIENTS: u64 = 64;

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Plain,
    Stream,
    Chat,
    LeavePlain,
    LeaveStream,
    BrokenJson,
    WrongType,
    TooLarge,
    HalfBody,
    HalfHead,
    Noise,
    Nowhere,
    Tokenize,
}

const DEEDS: [Deed; 16] = [
    Deed::Plain,
    Deed::Plain,
    Deed::Plain,
    Deed::Stream,
    Deed::Stream,
    Deed::Chat,
    Deed::LeavePlain,
    Deed::LeaveStream,
    Deed::BrokenJson,
    Deed::WrongType,
    Deed::TooLarge,
    Deed::HalfBody,
    Deed::HalfHead,
    Deed::Noise,
    Deed::Nowhere,
    Deed::Tokenize,
];

/// Numbers that look random: a hash of the request's.
fn mix(i: u64, salt: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xff51_afd7_ed55_8ccd);
    let x = (x ^ (x >> 31)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 29)
}

/// A request of 50 kinds, so that many are asked more than once.
fn body(i: u64) -> Value {
    let kind = mix(i, 2) % 50;
    let every = |n: u64| kind.is_multiple_of(n);
    let prompt: Vec<u64> = (0..1 + mix(kind, 3) % 48).map(|t| (kind * 5 + t) % 250).collect();
    json!({
        "prompt": prompt, "max_tokens": 1 + mix(kind, 4) % 24, "ignore_eos": !every(5),
        "temperature": if every(2) { 0.0 } else { 0.8 }, "seed": kind, "n": 1 + kind % 7 / 6,
        "logprobs": if every(3) { json!(2) } else { Value::Null }, "echo": every(11),
        "stop": if every(4) { json!(["e", "th"]) } else { Value::Null },
    })
}

/// What many clients saw.
#[derive(Default)]
struct Seen {
    counts: Mutex<BTreeMap<(Deed, u16), u64>>,
    /// The choices of each body that was answered: always the same ones.
    answers: Mutex<BTreeMap<String, Value>>,
    repeated: AtomicU64,
    /// Answers 429.
    busy: AtomicU64,
}

impl Seen {
    fn count(&self, deed: Deed, status: u16) {
        *self.counts.lock().unwrap().entry((deed, status)).or_default() += 1;
    }

    /// Asks until the server is not too busy; the answer is a whole one.
    fn ask(&self, deed: Deed, address: SocketAddr, path: &str, body: &Value) -> Answer {
        loop {
            let answer = post(address, path, body);
            assert!(answer.is_whole, "{deed:?}: {}", answer.body);
            if answer.status != 429 {
                self.count(deed, answer.status);
                assert_eq!(answer.status, 200, "{deed:?}: {}", answer.body);
                return answer;
            }
            answer.error(429);
            self.busy.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn compare(&self, body: &Value, choices: Value) {
        let mut answers = self.answers.lock().unwrap();
        match answers.get(&body.to_string()) {
            Some(before) => {
                assert_eq!(before, &choices, "{body}");
                self.repeated.fetch_add(1, Ordering::Relaxed);
            }
            None => _ = answers.insert(body.to_string(), choices),
        }
    }

    fn request(&self, address: SocketAddr, i: u64) {
        let deed = DEEDS[(mix(i, 1) % DEEDS.len() as u64) as usize];
        let mut body = body(i);
        match deed {
            Deed::Plain => {
                let answer = self.ask(deed, address, "/v1/completions", &body);
                self.compare(&body, answer.json()["choices"].clone());
            }
            Deed::Stream => {
                body["stream"] = true.into();
                let answer = self.ask(deed, address, "/v1/completions", &body);
                let n = body["n"].as_u64().unwrap() as usize;
                let pieces = answer.pieces();
                let ends = pieces.iter().filter(|p| !p["choices"][0]["finish_reason"].is_null());
                assert_eq!(ends.count(), n);
            }
            Deed::Chat => {
                let messages = json!([{ "role": "user", "content": format!("{}", i % 9) }]);
                let body = json!({ "messages": messages, "seed": i % 3, "max_tokens": 12 });
                let answer = self.ask(deed, address, "/v1/chat/completions", &body);
                self.compare(&body, answer.json()["choices"].clone());
            }
            Deed::LeavePlain | Deed::LeaveStream => {
                body["max_tokens"] = 600.into();
                body["stream"] = (deed == Deed::LeaveStream).into();
                let mut stream = connect(address);
                let message = message("POST", "/v1/completions", &body.to_string());
                stream.write_all(message.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(mix(i, 5) % 12));
                if deed == Deed::LeaveStream {
                    let mut some = vec![0; 1 + (mix(i, 6) % 900) as usize];
                    let _ = stream.read(&mut some);
                }
                // One way or the other.
                if i.is_multiple_of(2) {
                    let _ = stream.shutdown(Shutdown::Both);
                }
                self.count(deed, 0);
            }
            Deed::BrokenJson => {
                let text = body.to_string();
                let cut = (mix(i, 7) as usize) % text.len();
                let message = message("POST", "/v1/completions", &text[..cut]);
                let answer = crate::client::exchange(address, &message);
                answer.error(400);
                self.count(deed, answer.status);
            }
            Deed::WrongType => {
                let name = ["n", "seed", "stop", "max_tokens", "stream"][(i % 5) as usize];
                body[name] = json!({ "no": 1 });
                let answer = post(address, "/v1/completions", &body);
                answer.error(400);
                self.count(deed, answer.status);
            }
            Deed::TooLarge => {
                body["user"] = "u".repeat(70_000).into();
                let answer = post(address, "/v1/completions", &body);
                answer.error(413);
                self.count(deed, answer.status);
            }
            Deed::HalfBody | Deed::HalfHead => {
                let message = message("POST", "/v1/completions", &body.to_string());
                let head = message.find("\r\n\r\n").unwrap();
                let cut = if deed == Deed::HalfHead { head / 2 } else { head + 10 };
                let mut stream = connect(address);
                stream.write_all(&message.as_bytes()[..cut]).unwrap();
                let _ = stream.shutdown(Shutdown::Write);
                let _ = read(&mut stream);
                self.count(deed, 0);
            }
            Deed::Noise => {
                let noise: Vec<u8> = (0..200).map(|k| mix(i, k) as u8).collect();
                let mut stream = connect(address);
                let _ = stream.write_all(&noise);
                let _ = stream.shutdown(Shutdown::Write);
                // No HTTP: an error, or nothing.
                let status = read(&mut stream).map_or(0, |answer| answer.status);
                assert!(matches!(status, 0 | 400), "{status}");
                self.count(deed, status);
            }
            Deed::Nowhere => {
                let answer = get(address, "/v2/nothing");
                answer.error(404);
                self.count(deed, answer.status);
            }
            Deed::Tokenize => {
                let answer = post(address, "/tokenize", &json!({ "prompt": "some text" }));
                assert_eq!(answer.ok()["count"], 9);
                self.count(deed, answer.status);
            }
        }
    }
}

fn soak(requests: u64) {
    let limits = Limits {
        body_bytes_max: 1 << 16,
        body_timeout: Duration::from_secs(5),
        running_max: 24,
        waiting_max: 32,
        ..Limits::default()
    };
    // Too small for all of them, so that some are preempted.
    let options = Options { pool_blocks: Some(256), limits, ..Options::default() };
    let running = start(options);
    let address = running.address();
    let seen = Seen::default();
    let (next, begun) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= requests {
                        return;
                    }
                    seen.request(address, i);
                }
            });
        }
    });
    let took = begun.elapsed();
    wait_for(address, "vllm:num_requests_running", 0.0);
    wait_for(address, "vllm:num_requests_waiting", 0.0);
    assert_eq!(metric(address, "vllm:kv_cache_usage_perc"), 0.0);
    let aborted = metric(address, "lockstep:sequences_aborted_total");
    assert!(aborted > 0.0);
    stop(running);
    let counts = seen.counts.into_inner().unwrap();
    assert_eq!(counts.values().sum::<u64>(), requests);
    assert!(counts.keys().all(|(_, status)| *status < 500), "{counts:?}");
    let (repeated, busy) = (seen.repeated.into_inner(), seen.busy.into_inner());
    assert!(repeated > requests / 10, "{repeated} answers were given before");
    assert!(busy > 0, "the queue was never full");
    eprintln!(
        "soak: {requests} requests, {CLIENTS} in flight, in {took:.1?}; {repeated} answers equal to \
         an earlier one of the same request; {busy} times 429; {aborted} sequences aborted; {counts:?}"
    );
}

pub(crate) fn few() {
    soak(400);
}

pub(crate) fn many() {
    soak(10_000);
}
