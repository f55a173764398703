//! The probe against servers that refuse fields, end their answers in their own way, or leave things out.

use std::time::Duration;

use serde_json::Value;

use super::super::super::options::{Options, Silent, Target};
use super::super::super::session::{Ledger, Session};
use super::super::super::wire::fake::{Fake, respond, stream_out};
use super::super::super::wire::{Client, Dialect};
use super::*;

/// What the probe found out, and how it would ask from then on.
fn probed(server: &Fake, api: Api) -> (Result<(), CertifyError>, Facts, Dialect) {
    let (options, target) = (Options::default(), server.target());
    let ledger = Ledger::new(&options, &Silent, 0);
    let client = Client::new(&target, Duration::from_secs(5)).unwrap();
    let dialect = Dialect::new("m", &Target { api, ..target });
    let mut session = Session::new(&ledger, client, dialect, 0);
    let mut facts = Facts::default();
    let result = find_out(&mut session, &mut facts, api);
    (result, facts, session.dialect)
}

fn ability<'f>(facts: &'f Facts, name: &str) -> Option<(Option<bool>, &'f str)> {
    let found = facts.server.abilities.iter().find(|ability| ability.name == name)?;
    Some((found.known, &found.evidence))
}

/// An answer of as many tokens as were asked for, each prompt's own.
fn document(body: &Value, reason: Value) -> Value {
    let chat = body.get("messages").is_some();
    let n = ["max_tokens", "max_completion_tokens"].iter().find_map(|name| body[*name].as_u64());
    let n = n.unwrap_or(16);
    let tokens: Vec<String> = (0..n).map(|i| format!(" t{i}")).collect();
    let values: Vec<f64> = (0..n).map(|i| -1.0 / (i + 2) as f64).collect();
    let top: Vec<Value> =
        tokens.iter().zip(&values).map(|(t, v)| json!({ t: v, "z": -9.5 })).collect();
    let text = tokens.concat();
    let prompts = match &body["prompt"] {
        Value::Array(all) if all.iter().any(Value::is_string) => all.len(),
        _ => 1,
    };
    let choice = |index: usize| match chat {
        false => json!({ "index": index, "text": text, "finish_reason": reason, "logprobs":
            { "tokens": tokens, "token_logprobs": values, "top_logprobs": top } }),
        true => {
            let content: Vec<Value> = tokens
                .iter()
                .zip(&values)
                .map(|(t, v)| json!({ "token": t, "logprob": v }))
                .collect();
            json!({ "index": index, "message": { "content": text }, "finish_reason": reason,
                "logprobs": { "content": content } })
        }
    };
    let choices: Vec<Value> = (0..prompts).map(choice).collect();
    json!({ "choices": choices, "usage": { "completion_tokens": n * prompts as u64 } })
}

fn refusal(message: &str) -> (u16, Value) {
    (400, json!({ "error": { "message": message } }))
}

/// A server that refuses these fields, by name or without a word.
fn refusing(fields: &'static [&'static str], says: bool) -> Fake {
    Fake::of_documents(move |body| match fields.iter().find(|field| body.get(**field).is_some()) {
        Some(field) if says => refusal(&format!("Unknown field \"{field}\"; max_tokens is one")),
        Some(_) => (422, json!({ "detail": "no" })),
        None => (200, document(body, json!("length"))),
    })
}

#[test]
fn fields_that_are_refused_are_left_out_and_nothing_else_is() {
    let fields = &["top_p", "n", "presence_penalty", "seed", "min_p"][..];
    for says in [true, false] {
        let server = refusing(fields, says);
        let (result, facts, dialect) = probed(&server, Api::Auto);
        assert_eq!(result, Ok(()));
        assert_eq!(dialect.left_out, fields.iter().map(|f| f.to_string()).collect(), "{says}");
        assert_eq!((dialect.route, dialect.logprobs), (Route::Completions, Some(5)));
        assert!(dialect.fixed_length && dialect.extra_sampling && !dialect.max_completion_tokens);
        for field in fields {
            let (known, evidence) = ability(&facts, &format!("field {field}")).unwrap();
            assert_eq!(known, Some(false));
            assert!(evidence.starts_with("left out, refused: status 4"), "{evidence}");
        }
        assert_eq!(ability(&facts, "field temperature"), None);
    }
}

/// The last refusal's field was the one; the others are wanted.
#[test]
fn fields_that_a_refusal_only_mentions_are_put_back() {
    let server = Fake::of_documents(|body| match body.get("top_p") {
        Some(_) => refusal("temperature, n and frequency_penalty are taken, top_p is not"),
        None => (200, document(body, json!("stop"))),
    });
    let (_, _, dialect) = probed(&server, Api::Auto);
    assert_eq!(dialect.left_out, ["top_p".to_owned()].into());
}

#[test]
fn the_longest_answer_is_asked_for_by_the_name_that_is_wanted() {
    for says in ["Use 'max_completion_tokens' instead", "no"] {
        let server = Fake::of_documents(move |body| match body.get("messages") {
            None => (404, json!({ "error": { "message": "no completions" } })),
            Some(_) if body.get("max_tokens").is_some() => refusal(says),
            Some(_) => (200, document(body, json!("length"))),
        });
        let (result, facts, dialect) = probed(&server, Api::Auto);
        assert_eq!(result, Ok(()));
        assert_eq!((dialect.route, dialect.logprobs), (Route::Chat, Some(5)));
        assert!(dialect.max_completion_tokens && dialect.left_out.is_empty(), "{dialect:?}");
        let (_, evidence) = ability(&facts, "field max_tokens").unwrap();
        assert!(evidence.starts_with("sent as max_completion_tokens"), "{evidence}");
    }
}

#[test]
fn log_probabilities_stay_without_a_field_that_is_refused_beside_them() {
    // Alternatives are refused, and so is a field once values are asked for.
    let server = Fake::of_documents(|body| {
        let asks = body.get("logprobs").is_some();
        if asks && body.get("top_logprobs").is_some() {
            return refusal("top_logprobs is not supported");
        }
        if asks && body.get("frequency_penalty").is_some() {
            return (422, json!({}));
        }
        (200, document(body, json!("length")))
    });
    let (_, facts, dialect) = probed(&server, Api::Chat);
    assert_eq!(dialect.logprobs, Some(5));
    assert_eq!(ability(&facts, LOGPROBS).unwrap().0, Some(true));
    let left_out: Vec<&str> = dialect.left_out.iter().map(String::as_str).collect();
    assert_eq!(left_out, ["frequency_penalty", "top_logprobs"]);
}

#[test]
fn both_refusals_are_named_and_the_endpoint_that_was_asked_for_is_asked_alone() {
    let no = |body: &Value| match body.get("messages") {
        None => (404, json!({ "error": { "message": "no such page" } })),
        Some(_) => (403, json!({ "error": { "message": "not for you" } })),
    };
    let (result, ..) = probed(&Fake::of_documents(no), Api::Auto);
    let why = result.unwrap_err().to_string();
    assert!(why.contains("completions: status 404: no such page"), "{why}");
    assert!(why.contains("chat completions: status 403: not for you"), "{why}");
    for (api, field) in [(Api::Chat, "messages"), (Api::Completions, "prompt")] {
        let server = refusing(&[], true);
        let (result, ..) = probed(&server, api);
        assert_eq!(result, Ok(()));
        let bodies = server.bodies();
        let asked = bodies.iter().filter(|body| body.get("temperature").is_some());
        assert!(asked.clone().count() > 5 && asked.clone().all(|body| body.get(field).is_some()));
    }
}

#[test]
fn an_end_of_a_servers_own_is_accepted_once_it_was_shown_twice() {
    for reason in [Value::Null, json!(""), json!("done")] {
        let shown = reason.clone();
        let server = Fake::of_documents(move |body| (200, document(body, shown.clone())));
        let (result, facts, dialect) = probed(&server, Api::Auto);
        assert_eq!(result, Ok(()), "{reason}");
        let accepted = [reason.as_str().map(str::to_owned)].into();
        assert_eq!(dialect.endings, super::super::super::wire::Endings::Usual(accepted));
        assert_eq!(ability(&facts, "reasons of ends").unwrap().0, Some(false));
    }
}

#[test]
fn ends_of_answers_that_were_cut_short_are_never_accepted() {
    let aborts = Fake::of_documents(|body| (200, document(body, json!("abort"))));
    let (result, ..) = probed(&aborts, Api::Completions);
    assert!(result.unwrap_err().to_string().contains("ended by \"abort\""));
    // No reason, and never all tokens.
    let short = Fake::of_documents(|body| {
        let mut body = body.clone();
        body["max_tokens"] = json!(1);
        (200, document(&body, Value::Null))
    });
    let (result, ..) = probed(&short, Api::Completions);
    assert!(result.unwrap_err().to_string().contains("ended without a reason"));
}

#[test]
fn values_that_are_all_one_carry_no_information() {
    let server = Fake::of_documents(|body| {
        let mut document = document(body, json!("length"));
        let logprobs = &mut document["choices"][0]["logprobs"];
        let n = logprobs["tokens"].as_array().map_or(0, Vec::len);
        logprobs["token_logprobs"] = json!(vec![0.0; n]);
        logprobs["top_logprobs"] = json!(vec![json!({}); n]);
        (200, document)
    });
    let (_, facts, dialect) = probed(&server, Api::Auto);
    let (known, evidence) = ability(&facts, LOGPROBS).unwrap();
    assert_eq!((known, dialect.logprobs), (Some(false), Some(5)));
    assert!(
        evidence.contains("no information") && facts.notes.iter().any(|n| n.contains(evidence))
    );
}

/// Chunks of three tokens, with the records that `keep` leaves of them.
fn streaming(keep: fn(Vec<Value>) -> Vec<Value>) -> Fake {
    Fake::start(move |stream, request, _| {
        let body: Value =
            request.lines().last().and_then(|l| serde_json::from_str(l).ok()).unwrap_or_default();
        let document = document(&body, json!("length"));
        if body.get("stream").is_none() {
            respond(stream, "200 OK", "", &document.to_string());
            return true;
        }
        let of =
            |field: &str| document["choices"][0]["logprobs"][field].as_array().unwrap().clone();
        let (tokens, values, top) = (of("tokens"), of("token_logprobs"), of("top_logprobs"));
        let records = tokens.iter().zip(values).zip(top).map(|((t, v), top)| json!([t, v, top]));
        let records: Vec<Value> = records.collect();
        let mut events = String::new();
        for chunk in records.chunks(3) {
            let text: String = chunk.iter().filter_map(|record| record[0].as_str()).collect();
            let kept = keep(chunk.to_vec());
            let of = |i: usize| kept.iter().map(|record| record[i].clone()).collect::<Vec<_>>();
            let logprobs =
                json!({ "tokens": of(0), "token_logprobs": of(1), "top_logprobs": of(2) });
            let choice = json!({ "text": text, "logprobs": logprobs });
            events.push_str(&format!("data: {}\n\n", json!({ "choices": [choice] })));
        }
        let last = json!({ "choices": [{ "text": "", "finish_reason": "length" }], "usage": document["usage"] });
        stream_out(stream, &format!("{events}data: {last}\n\ndata: [DONE]\n\n"), true);
        true
    })
}

#[test]
fn streams_with_gaps_or_displaced_alternatives_are_found_out() {
    let first = |mut records: Vec<Value>| {
        let top = records[0][2].clone();
        records.iter_mut().for_each(|record| record[2] = top.clone());
        records
    };
    for (keep, whole, displaced) in [
        ((|all| all) as fn(Vec<Value>) -> Vec<Value>, true, false),
        (|all| all[..1].to_vec(), false, false),
        (|all| all[all.len() - 1..].to_vec(), false, false),
        (|all| if all[0][0] == json!(" t21") { all[..2].to_vec() } else { all }, false, false),
        (|_| Vec::new(), false, false),
        (first, false, true),
    ] {
        let (result, facts, dialect) = probed(&streaming(keep), Api::Auto);
        assert_eq!(result, Ok(()));
        let (_, evidence) = ability(&facts, "streams").unwrap();
        assert!(facts.streams);
        assert_eq!(
            (facts.stream_is_whole, dialect.displaces_in_streams),
            (whole, displaced),
            "{evidence}"
        );
    }
}

#[test]
fn many_prompts_in_a_request_are_known_by_as_many_answers() {
    let (_, facts, _) = probed(&refusing(&[], true), Api::Auto);
    assert!(facts.many_prompts);
    assert_eq!(ability(&facts, "many prompts in a request").unwrap().0, Some(true));
    // One answer to all of them.
    let joined = Fake::of_documents(|body| {
        let mut body = body.clone();
        body["prompt"] = json!("joined");
        (200, document(&body, json!("length")))
    });
    let (_, facts, _) = probed(&joined, Api::Auto);
    assert!(!facts.many_prompts);
    assert_eq!(ability(&facts, "many prompts in a request").unwrap().0, Some(false));
}
