//! `/v1/completions`: what it gives is what the engine computes.

use std::net::SocketAddr;

use lockstep::contract::Mode;
use lockstep::contract::sampler::SamplerParams;
use lockstep::record::Output;
use lockstep::schedule::Schedule;
use lockstep::serve::{Options, Server};
use lockstep::subject::Subject;
use lockstep::workload::{Request, SampleId, Workload};
use serde_json::{Value, json};

use crate::client::{Answer, post};
use crate::{fixture, start, stop};

const PATH: &str = "/v1/completions";

pub(crate) fn complete(address: SocketAddr, body: Value) -> Value {
    post(address, PATH, &body).ok()
}

/// The canonical execution of a sample.
fn alone(request: &Request, sample: u32) -> Output {
    let fixture = fixture(Mode::Invariant);
    let id = SampleId { uid: request.uid, sample };
    let workload = Workload { requests: vec![request.clone()] }.alone(id);
    let mut world = fixture.default_world();
    world.pool_blocks = workload.lengths()[0].blocks(world.block_size) as u32;
    let run = fixture.execute(&world, &workload, &Schedule::default(), 0, None).unwrap();
    run.outputs[&id].clone()
}

fn uid(answer: &Value) -> u64 {
    answer["id"].as_str().unwrap().strip_prefix("cmpl-").unwrap().parse().unwrap()
}

/// Bits of an f32 that is written in JSON.
fn bits(value: &Value) -> u32 {
    (value.as_f64().expect("a number") as f32).to_bits()
}

/// Checks a choice with log-probabilities and token ids against an output.
fn same(choice: &Value, output: &Output, stop: usize) {
    let ids: Vec<u32> = serde_json::from_value(choice["token_ids"].clone()).unwrap();
    assert_eq!(ids, output.tokens);
    assert_eq!(choice["text"], String::from_utf8_lossy(&output.text).as_ref());
    let logprobs: Vec<u32> =
        choice["logprobs"]["token_logprobs"].as_array().unwrap().iter().map(bits).collect();
    let expected: Vec<u32> = output.scores.iter().map(|score| score.logprob).collect();
    assert_eq!(logprobs, expected);
    assert_eq!(expected.len(), stop);
    for (top, score) in
        choice["logprobs"]["top_logprobs"].as_array().unwrap().iter().zip(&output.scores)
    {
        let top = top.as_object().unwrap();
        assert!((2..=3).contains(&top.len()), "{top:?}");
        let mut listed: Vec<u32> = top.values().map(bits).collect();
        let mut best: Vec<u32> = score.top.iter().map(|(_, x)| *x).collect();
        listed.sort_unstable();
        best.sort_unstable();
        assert!(best.iter().all(|x| listed.contains(x)));
    }
}

/// Goal: tokens, text and log-probabilities are the bits of the canonical execution, whoever else is served. Method: 24
/// clients at once, greedy, seeded and unseeded; each answer against an execution of its request alone.
pub(crate) fn canonical() {
    let running = start(Options::default());
    let address = running.address();
    std::thread::scope(|scope| {
        for i in 0..24u64 {
            scope.spawn(move || {
                let prompt: Vec<u32> = (0..1 + 5 * i as u32 % 37).map(|t| 60 + t).collect();
                let temperature = if i.is_multiple_of(3) { 0.0 } else { 0.75 };
                let seed = (i % 3 == 1).then_some(i);
                let answer = complete(
                    address,
                    json!({ "model": "tiny", "prompt": prompt, "max_tokens": 20, "logprobs": 2,
                        "temperature": temperature, "seed": seed, "ignore_eos": true,
                        "return_token_ids": true, "n": 1 + i % 2 }),
                );
                let request = Request {
                    sampling: SamplerParams { temperature, ..SamplerParams::default() },
                    seed,
                    ignore_eos: true,
                    samples: 1 + (i % 2) as u32,
                    logprobs: Some(2),
                    ..Request::new(uid(&answer), prompt.clone(), 20)
                };
                for (sample, choice) in answer["choices"].as_array().unwrap().iter().enumerate() {
                    assert_eq!(choice["index"], sample);
                    assert_eq!(choice["finish_reason"], "length");
                    same(choice, &alone(&request, sample as u32), 20);
                }
                let samples = 1 + (i % 2) as usize;
                assert_eq!(answer["choices"].as_array().unwrap().len(), samples);
                let usage = &answer["usage"];
                assert_eq!(usage["prompt_tokens"], prompt.len());
                assert_eq!(usage["completion_tokens"], 20 * samples);
                assert_eq!(usage["total_tokens"], prompt.len() + 20 * samples);
            });
        }
    });
    stop(running);
}

pub(crate) fn prompts() {
    let running = start(Options::default());
    let ask = |prompt: Value| {
        let body = json!({ "prompt": prompt, "temperature": 0, "max_tokens": 5 });
        complete(running.address(), body)
    };
    let text = |answer: &Value, i: usize| answer["choices"][i]["text"].as_str().unwrap().to_owned();
    let one = ask(json!("ab"));
    let (ab, cd) = (text(&one, 0), text(&ask(json!("cd")), 0));
    assert_ne!(ab, cd);
    assert_eq!(text(&ask(json!([97, 98])), 0), ab);
    let both = ask(json!(["ab", "cd"]));
    assert_eq!([text(&both, 0), text(&both, 1)], [ab.clone(), cd.clone()]);
    assert_eq!(both["usage"]["prompt_tokens"], 4);
    let mixed = ask(json!([[99, 100], "ab", [97, 98]]));
    assert_eq!([0, 1, 2].map(|i| text(&mixed, i)), [cd, ab.clone(), ab]);
    assert_eq!((&one["object"], &one["model"]), (&json!("text_completion"), &json!("tiny")));
    assert!(one["created"].as_u64().is_some_and(|s| s > 1_700_000_000));
    // The default of the protocol.
    let long = complete(running.address(), json!({ "prompt": "ab", "ignore_eos": true }));
    assert_eq!(long["usage"]["completion_tokens"], 16);
    stop(running);
}

/// Puts the pieces of each choice together.
fn together(answer: &Answer, choices: usize) -> Vec<Value> {
    let mut all = vec![json!({ "text": "", "logprobs": null }); choices];
    for piece in answer.pieces() {
        for choice in piece["choices"].as_array().unwrap() {
            let all = &mut all[choice["index"].as_u64().unwrap() as usize];
            let text = all["text"].as_str().unwrap().to_owned() + choice["text"].as_str().unwrap();
            all["text"] = text.into();
            assert!(all["finish_reason"].is_null(), "a piece after the last one");
            for key in ["finish_reason", "stop_reason"] {
                all[key] = choice[key].clone();
            }
            append(&mut all["token_ids"], &choice["token_ids"]);
            for (key, list) in choice["logprobs"].as_object().into_iter().flatten() {
                append(&mut all["logprobs"][key], list);
            }
            if !choice["prompt_token_ids"].is_null() {
                all["prompt_token_ids"] = choice["prompt_token_ids"].clone();
            }
        }
    }
    all
}

fn append(all: &mut Value, more: &Value) {
    if let Some(more) = more.as_array() {
        let mut list = all.as_array().cloned().unwrap_or_default();
        list.extend(more.iter().cloned());
        *all = list.into();
    }
}

/// Goal: a stream and a plain answer are the same, to the last digit. Method: requests of several kinds, asked for both
/// ways; the pieces put together.
pub(crate) fn streams() {
    let running = start(Options::default());
    let kinds = [
        json!({ "prompt": "The quick", "temperature": 0 }),
        json!({ "prompt": "The quick", "seed": 3, "n": 3, "logprobs": 2, "return_token_ids": true }),
        json!({ "prompt": ["a", "bc"], "seed": 4, "echo": true, "logprobs": 0, "max_tokens": 30 }),
        json!({ "prompt": "é", "seed": 5, "temperature": 1.5, "max_tokens": 60, "ignore_eos": true }),
        json!({ "prompt": "x", "seed": 6, "stop": ["a", "e"], "max_tokens": 60, "logprobs": 1 }),
    ];
    for mut body in kinds {
        let plain = complete(running.address(), body.clone());
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
        let answer = post(running.address(), PATH, &body);
        assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
        let choices = plain["choices"].as_array().unwrap();
        for (piece, choice) in together(&answer, choices.len()).iter().zip(choices) {
            for (key, value) in piece.as_object().unwrap() {
                assert_eq!(value, &choice[key], "{key} of {body}");
            }
        }
        let last = answer.pieces().pop().unwrap();
        assert_eq!(last["choices"], json!([]));
        // What was cached depends on what came before; the rest does not.
        assert_eq!(last["usage"]["completion_tokens"], plain["usage"]["completion_tokens"]);
        // As digits too: the last logprob of a choice stands in both texts.
        body["stream_options"] = Value::Null;
        let pieces = post(running.address(), PATH, &body).pieces();
        assert!(pieces.iter().all(|piece| piece.get("usage").is_none()));
    }
    stop(running);
}

pub(crate) fn stops() {
    let running = start(Options::default());
    let ask = |stop: Value| {
        let body = json!({ "prompt": "stop", "seed": 11, "max_tokens": 40, "stop": stop,
            "return_token_ids": true, "ignore_eos": true });
        complete(running.address(), body)["choices"][0].clone()
    };
    let whole = ask(Value::Null);
    let ids: Vec<u32> = serde_json::from_value(whole["token_ids"].clone()).unwrap();
    // Two neighbouring bytes that are ASCII, so that the stop string begins in one token and ends in the next.
    let at = (8..39).find(|&i| ids[i..i + 2].iter().all(|id| (33..127).contains(id)));
    let at = at.expect("two ASCII bytes");
    let stop_string: String = ids[at..at + 2].iter().map(|id| char::from(*id as u8)).collect();
    let first = (0..39).find(|&i| ids[i..i + 2] == ids[at..at + 2]).unwrap();
    for stop in [json!(stop_string), json!(["\u{1}none", stop_string])] {
        let stopped = ask(stop.clone());
        assert_eq!(stopped["finish_reason"], "stop");
        assert_eq!(stopped["stop_reason"], stop_string);
        assert_eq!(stopped["token_ids"].as_array().unwrap().len(), first + 2);
        let text = stopped["text"].as_str().unwrap();
        // Put together elsewhere: a plain answer is made of the pieces that are looked at below.
        let before = json!({ "tokens": ids[..first] });
        let before = post(running.address(), "/detokenize", &before).ok();
        assert_eq!(text, before["prompt"]);
        let body = json!({ "prompt": "stop", "seed": 11, "max_tokens": 40, "stop": stop,
            "ignore_eos": true, "stream": true });
        let pieces = post(running.address(), PATH, &body).pieces();
        let shown: String =
            pieces.iter().map(|piece| piece["choices"][0]["text"].as_str().unwrap()).collect();
        assert_eq!(shown, text);
    }
    // A stop token is named by its id, and is no part of the text either.
    let body = json!({ "prompt": "stop", "seed": 11, "max_tokens": 40, "ignore_eos": true,
        "stop_token_ids": [ids[at]], "return_token_ids": true });
    let stopped = complete(running.address(), body)["choices"][0].clone();
    assert_eq!(stopped["finish_reason"], "stop");
    assert_eq!(stopped["stop_reason"], ids[at]);
    assert_eq!(stopped["token_ids"].as_array().unwrap().last(), Some(&json!(ids[at])));
    stop(running);
}

/// Goal: a prompt that is scored has the log-probabilities that its tokens had when they were generated. Method: an answer
/// with log-probabilities, then prompt and answer together with `echo`, alone and with tokens after it.
pub(crate) fn echo() {
    let running = start(Options::default());
    let prompt = [84, 104, 101, 32];
    let body = json!({ "prompt": prompt, "seed": 2, "max_tokens": 24, "logprobs": 0,
        "return_token_ids": true, "ignore_eos": true });
    let generated = complete(running.address(), body)["choices"][0].clone();
    let ids: Vec<u32> = serde_json::from_value(generated["token_ids"].clone()).unwrap();
    let whole: Vec<u32> = prompt.iter().copied().chain(ids).collect();
    for max_tokens in [0, 3] {
        let body = json!({ "prompt": whole, "echo": true, "logprobs": 1, "max_tokens": max_tokens,
            "temperature": 0, "ignore_eos": true });
        let answer = complete(running.address(), body);
        let choice = &answer["choices"][0];
        let logprobs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        assert_eq!(logprobs.len(), whole.len() + max_tokens);
        assert!(logprobs[0].is_null() && choice["logprobs"]["top_logprobs"][0].is_null());
        let scored: Vec<u32> = logprobs[prompt.len()..whole.len()].iter().map(bits).collect();
        let drawn = generated["logprobs"]["token_logprobs"].as_array().unwrap();
        assert_eq!(scored, drawn.iter().map(bits).collect::<Vec<_>>());
        assert_eq!(answer["usage"]["completion_tokens"], max_tokens);
        assert_eq!(choice["finish_reason"], "length");
        assert!(choice["text"].as_str().unwrap().starts_with("The "));
        let offsets: Vec<usize> =
            serde_json::from_value(choice["logprobs"]["text_offset"].clone()).unwrap();
        assert!(offsets[..5] == [0, 1, 2, 3, 4] && offsets.is_sorted(), "{offsets:?}");
    }
    let text =
        complete(running.address(), json!({ "prompt": "Aé", "echo": true, "max_tokens": 1 }));
    assert!(text["choices"][0]["text"].as_str().unwrap().starts_with("Aé"));
    stop(running);
}

pub(crate) fn cached() {
    let running = start(Options::default());
    let prompt: Vec<u32> = (100..121).collect();
    let ask = |salt: Value| {
        let body = json!({ "prompt": prompt, "temperature": 0, "cache_salt": salt });
        let answer = complete(running.address(), body);
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        (cached, answer["choices"][0]["text"].clone())
    };
    let (cold, text) = ask(Value::Null);
    // Blocks of 4; the last token at least is computed.
    assert_eq!((cold, ask(Value::Null)), (0, (20, text.clone())));
    assert_eq!(ask(json!("mine")), (0, text.clone()));
    assert_eq!(ask(json!("mine")), (20, text.clone()));
    assert_eq!(ask(json!("yours")), (0, text));
    stop(running);
}

pub(crate) fn samples() {
    let running = start(Options::default());
    let ask = |seed: Value, n: u32| {
        let body = json!({ "prompt": "dice", "seed": seed, "n": n, "max_tokens": 24 });
        let answer = complete(running.address(), body);
        let choices = answer["choices"].as_array().unwrap().clone();
        choices.iter().map(|c| c["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let three = ask(json!(1), 3);
    assert!(three[0] != three[1] && three[1] != three[2] && three[0] != three[2]);
    assert_eq!(ask(json!(1), 1)[0], three[0]);
    assert_ne!(ask(json!(2), 1)[0], three[0]);
    assert_eq!(ask(json!(-1), 1), ask(json!(u64::MAX), 1));
    // Without a seed the draws depend on the request's place among all.
    assert_ne!(ask(Value::Null, 1), ask(Value::Null, 1));
    stop(running);
}

/// The positive control: with the batch-dependent mode, 16 clients at once get other bits than one alone.
pub(crate) fn control() {
    let running =
        Server::start(fixture(Mode::batch_dependent()), Options::default()).expect("a server");
    let address = running.address();
    let ask = move |i: u32| {
        let prompt: Vec<u32> = (0..40).map(|t| (i * 31 + t * 7) % 250).collect();
        let body = json!({ "prompt": prompt, "temperature": 0, "max_tokens": 24, "logprobs": 0,
            "ignore_eos": true, "cache_salt": format!("{i}") });
        complete(address, body)["choices"].clone()
    };
    let alone: Vec<Value> = (0..16).map(ask).collect();
    let together: Vec<Value> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|i| scope.spawn(move || ask(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let differ = alone.iter().zip(&together).filter(|(a, b)| a != b).count();
    assert!(differ > 0, "no answer differs");
    stop(running);
}
