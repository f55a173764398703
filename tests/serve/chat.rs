//! `/v1/chat/completions`, `/v1/models`, `/tokenize` and `/detokenize`.

use lockstep::serve::Options;
use serde_json::{Value, json};

use crate::client::{get, post};
use crate::completions::complete;
use crate::{start, stop};

const PATH: &str = "/v1/chat/completions";
const TEMPLATE: &str = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";

fn hello() -> Value {
    json!([{ "role": "user", "content": "Hello" }])
}

pub(crate) fn completion() {
    let running = start(Options::default());
    let body = json!({ "model": "tiny", "messages": hello(), "temperature": 0, "max_tokens": 12,
        "logprobs": true, "top_logprobs": 2, "return_token_ids": true, "ignore_eos": true });
    let chat = post(running.address(), PATH, &body).ok();
    let body = json!({ "prompt": TEMPLATE, "temperature": 0, "max_tokens": 12, "logprobs": 2,
        "return_token_ids": true, "ignore_eos": true });
    let text = complete(running.address(), body);
    let (choice, plain) = (&chat["choices"][0], &text["choices"][0]);
    assert_eq!(chat["object"], "chat.completion");
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["message"]["content"], plain["text"]);
    for key in ["token_ids", "finish_reason"] {
        assert_eq!(choice[key], plain[key], "{key}");
    }
    assert_eq!(chat["prompt_token_ids"], plain["prompt_token_ids"]);
    let content = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 12);
    for (i, token) in content.iter().enumerate() {
        assert_eq!(token["logprob"], plain["logprobs"]["token_logprobs"][i]);
        assert_eq!(token["token"], plain["logprobs"]["tokens"][i]);
        assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 2);
        // Greedy: the best one is the one that was drawn.
        assert_eq!(token["top_logprobs"][0]["logprob"], token["logprob"]);
        let id = plain["token_ids"][i].as_u64().unwrap();
        if id < 256 {
            assert_eq!(token["bytes"], json!([id]));
        }
    }
    // Without a number, as much as there is room for, or until the end of the turn.
    let body =
        json!({ "messages": hello(), "seed": 1, "temperature": 2.0, "return_token_ids": true });
    let chat = post(running.address(), PATH, &body).ok();
    let last = chat["choices"][0]["token_ids"].as_array().unwrap().last().unwrap().clone();
    let reason = &chat["choices"][0]["finish_reason"];
    match last.as_u64().unwrap() {
        256 | 259 => assert_eq!(reason, "stop"),
        _ => assert_eq!(reason, "length"),
    }
    assert!(chat["choices"][0]["stop_reason"].is_null());
    stop(running);
}

pub(crate) fn streams() {
    let running = start(Options::default());
    let mut body = json!({ "messages": hello(), "seed": 7, "max_completion_tokens": 20, "n": 2,
        "logprobs": true });
    let plain = post(running.address(), PATH, &body).ok();
    body["stream"] = true.into();
    body["stream_options"] = json!({ "include_usage": true });
    let mut pieces = post(running.address(), PATH, &body).pieces();
    let last = pieces.pop().unwrap();
    assert_eq!(last["usage"]["completion_tokens"], plain["usage"]["completion_tokens"]);
    assert_eq!(last["choices"], json!([]));
    for index in 0..2 {
        let mine: Vec<&Value> = pieces
            .iter()
            .map(|piece| &piece["choices"][0])
            .filter(|choice| choice["index"] == index)
            .collect();
        assert_eq!(mine[0]["delta"]["role"], "assistant");
        assert!(mine[1..].iter().all(|choice| choice["delta"].get("role").is_none()));
        let text: String = mine.iter().map(|c| c["delta"]["content"].as_str().unwrap()).collect();
        assert_eq!(plain["choices"][index]["message"]["content"], text);
        let logprobs: Vec<&Value> =
            mine.iter().flat_map(|c| c["logprobs"]["content"].as_array().unwrap()).collect();
        let all = plain["choices"][index]["logprobs"]["content"].as_array().unwrap();
        assert_eq!(logprobs, all.iter().collect::<Vec<_>>());
        let (end, others) = mine.split_last().unwrap();
        assert_eq!(end["finish_reason"], plain["choices"][index]["finish_reason"]);
        assert!(others.iter().all(|choice| choice["finish_reason"].is_null()));
    }
    assert!(pieces.iter().all(|piece| piece["object"] == "chat.completion.chunk"));
    stop(running);
}

pub(crate) fn models_and_tokens() {
    let running = start(Options { name: Some("my/model".into()), ..Options::default() });
    let address = running.address();
    let models = get(address, "/v1/models").ok();
    let model = &models["data"][0];
    assert_eq!((&model["id"], &model["object"]), (&json!("my/model"), &json!("model")));
    assert_eq!(model["max_model_len"], 1024);
    assert_eq!(&get(address, "/v1/models/my/model").ok(), model);
    get(address, "/v1/models/other").error(404);
    let body = json!({ "model": "other", "prompt": "x" });
    assert!(post(address, "/v1/completions", &body).error(404).contains("other"));

    for text in ["", "plain", "é日🦀 <|im_end|>\n\u{0}"] {
        let tokens = post(address, "/tokenize", &json!({ "prompt": text })).ok();
        assert_eq!(tokens["count"], tokens["tokens"].as_array().unwrap().len());
        let back = post(address, "/detokenize", &json!({ "tokens": tokens["tokens"] })).ok();
        assert_eq!(back["prompt"], text);
    }
    let body = json!({ "messages": hello(), "return_token_strs": true });
    let chat = post(address, "/tokenize", &body).ok();
    let text = post(address, "/tokenize", &json!({ "prompt": TEMPLATE })).ok();
    assert_eq!(chat["tokens"], text["tokens"]);
    assert_eq!(chat["token_strs"][0], "<|im_start|>");
    post(address, "/detokenize", &json!({ "tokens": "ab" })).error(400);
    post(address, "/detokenize", &json!({})).error(400);
    post(address, "/tokenize", &json!({ "prompt": [1, 2] })).error(400);
    stop(running);
}
