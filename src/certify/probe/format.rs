//! Endpoint, fields and formats: what a request may hold, and what an answer does.

use serde::Deserialize;
use serde_json::json;

use super::super::error::CertifyError;
use super::super::session::Session;
use super::super::wire::client::Place;
use super::super::wire::{Answer, Call, Client, Key, Prompt, Route, Sampling, WireError};
use super::{Facts, Tokenize, ask};

const TEXT: &str = "The quick brown fox jumps over the lazy dog, and then ";
const TOKENS: u32 = 6;

/// Everything about formats.
pub(super) fn find_out(session: &mut Session<'_>, facts: &mut Facts) -> Result<(), CertifyError> {
    let text = Call::greedy(Prompt::Text(TEXT.into()), TOKENS);
    find_route(session, facts, &text)?;
    find_logprobs(session, facts, &text);
    find_fields(session, facts, &text);
    let Ok(plain) = ask(session, &text) else {
        return Err(CertifyError::Unusable(
            "the same request was answered once, and then no more".into(),
        ));
    };
    name_tokens(facts, &plain.answer);
    find_ids(session, facts, &plain.answer);
    find_stream(session, facts, &text, &plain.answer);
    find_echo(session, facts);
    find_raw(session, facts, &plain.answer);
    Ok(())
}

/// Completions if there are any: they take a prompt as it is. Chat puts a template around it.
fn find_route(
    session: &mut Session<'_>,
    facts: &mut Facts,
    call: &Call,
) -> Result<(), CertifyError> {
    let first = match ask(session, call) {
        Ok(_) => {
            facts.ability("completions", true, "answered");
            return Ok(());
        }
        Err(error) => error,
    };
    facts.ability("completions", false, first.to_string());
    if first.is_refusal() {
        session.dialect.route = Route::Chat;
        match ask(session, call) {
            Ok(_) => {
                facts.ability("chat completions", true, "answered");
                facts
                    .notes
                    .push("chat only: a template that is not seen is part of each prompt".into());
                return Ok(());
            }
            Err(error) => facts.ability("chat completions", false, error.to_string()),
        }
    }
    Err(CertifyError::Unusable(format!("{}: no completion: {first}", facts.server.url)))
}

/// Five alternatives, which all servers give, or as many as it takes to have any.
fn find_logprobs(session: &mut Session<'_>, facts: &mut Facts, call: &Call) {
    let mut evidence = String::new();
    for alternatives in [5, 1] {
        session.dialect.logprobs = Some(alternatives);
        match ask(session, call) {
            Ok(exchange) if exchange.answer.tokens.iter().any(|token| token.logprob.is_some()) => {
                let most = exchange.answer.tokens.iter().map(|token| token.top.len()).max();
                let most = most.unwrap_or(0);
                let evidence = format!("asked for {alternatives} alternatives, got up to {most}");
                facts.ability("log-probabilities", true, evidence);
                return;
            }
            Ok(_) => evidence = "answered without any".into(),
            Err(error) => evidence = error.to_string(),
        }
    }
    session.dialect.logprobs = None;
    facts.ability("log-probabilities", false, evidence);
}

/// A field of the dialect, for switching it on and off.
type Field = fn(&mut super::super::wire::Dialect) -> &mut bool;

/// Fields beyond OpenAI's: taken only if they are not refused, and known only if they show in the answer.
fn find_fields(session: &mut Session<'_>, facts: &mut Facts, call: &Call) {
    let fields: [(&str, Field); 3] = [
        ("token ids in answers", |dialect| &mut dialect.return_ids),
        ("fixed length of answers", |dialect| &mut dialect.fixed_length),
        ("top_k, min_p and repetition penalty", |dialect| &mut dialect.extra_sampling),
    ];
    for (i, (name, field)) in fields.into_iter().enumerate() {
        *field(&mut session.dialect) = true;
        let (keep, known, evidence) = match ask(session, call) {
            Err(error) => (false, Some(false), error.to_string()),
            Ok(exchange) => {
                let answer = &exchange.answer;
                let whole = answer.completion_tokens == Some(call.answer_tokens.into());
                match i {
                    0 if answer.ids().is_some() => (true, Some(true), "received".into()),
                    0 => (false, Some(false), "answered without any".into()),
                    1 if whole => (true, Some(true), format!("{TOKENS} of {TOKENS} tokens")),
                    1 => (true, None, "taken; the length does not show it".into()),
                    _ => (true, None, "taken; whether they are heeded can't be seen".into()),
                }
            }
        };
        *field(&mut session.dialect) = keep;
        facts.ability(name, known, evidence);
    }
}

fn name_tokens(facts: &mut Facts, answer: &Answer) {
    let by = match answer.tokens.first().map(|token| &token.key) {
        Some(Key::Id(_)) if !answer.mismatched => "token ids",
        Some(Key::Bytes(_)) => "bytes",
        _ => "text only",
    };
    facts.server.tokens_named_by = by.into();
    if answer.mismatched {
        facts.notes.push("token ids and tokens of an answer do not fit each other".into());
    }
    if let Some(fingerprint) = &answer.fingerprint {
        let shown: String = fingerprint.chars().filter(|c| !c.is_control()).take(80).collect();
        facts.server.identity.push(format!("fingerprint {shown}"));
    }
}

fn find_ids(session: &mut Session<'_>, facts: &mut Facts, plain: &Answer) {
    let name = "token ids as a prompt";
    if session.dialect.route == Route::Chat {
        facts.ability(name, false, "chat takes text");
        return;
    }
    let model = session.dialect.model.clone();
    let ways = [Tokenize::Prompt, Tokenize::Content];
    let asked = ways.into_iter().find_map(|way| {
        Some((way, tokenize(&session.client, way, &model, TEXT).filter(|ids| !ids.is_empty())?))
    });
    let returned = plain.prompt_ids.clone().filter(|ids| !ids.is_empty());
    let Some((way, ids)) = asked.or(returned.map(|ids| (Tokenize::Answers, ids))) else {
        facts.ability(name, None, "no way to know any ids");
        return;
    };
    let n = ids.len() as u64;
    match ask(session, &Call::greedy(Prompt::Ids(ids), TOKENS)) {
        Ok(exchange) => {
            let counted = exchange.answer.prompt_tokens;
            // A server that reads ids as something else counts something else.
            let fits = counted.is_none_or(|counted| counted == n);
            facts.takes_ids = fits;
            facts.tokenize = fits.then_some(way);
            let counted =
                counted.map_or("not counted".into(), |counted| format!("{counted} counted"));
            facts.ability(name, fits, format!("{n} sent, {counted}"));
        }
        Err(error) => facts.ability(name, false, error.to_string()),
    }
}

#[derive(Deserialize)]
struct Ids {
    tokens: Vec<u32>,
}

/// Ids of a text by the server's own endpoint.
pub(crate) fn tokenize(
    client: &Client,
    way: Tokenize,
    model: &str,
    text: &str,
) -> Option<Vec<u32>> {
    let body = match way {
        Tokenize::Prompt => json!({ "model": model, "prompt": text, "add_special_tokens": true }),
        Tokenize::Content => json!({ "content": text, "add_special": true }),
        Tokenize::Answers => return None,
    };
    let text = client.post(Place::Root, "tokenize", &body).ok()?;
    serde_json::from_str::<Ids>(&text).ok().map(|ids| ids.tokens)
}

fn find_stream(session: &mut Session<'_>, facts: &mut Facts, call: &Call, plain: &Answer) {
    match ask(session, &Call { stream: true, ..call.clone() }) {
        Ok(exchange) if !exchange.arrivals.is_empty() => {
            let answer = &exchange.answer;
            let scored =
                |answer: &Answer| answer.tokens.iter().filter(|t| t.logprob.is_some()).count();
            let (n, m) = (scored(plain), scored(answer));
            facts.streams = true;
            facts.stream_is_whole = plain.tokens.is_empty() || (m > 0 && n > 0);
            let chunks = exchange.arrivals.len();
            let evidence =
                format!("{chunks} chunks, {m} log-probabilities against {n} in a plain answer");
            facts.ability("streams", true, evidence);
        }
        Ok(_) => facts.ability("streams", false, "answered at once"),
        Err(error) => facts.ability("streams", false, error.to_string()),
    }
}

/// Log-probabilities of a prompt: with no answer at all, or else with one token.
fn find_echo(session: &mut Session<'_>, facts: &mut Facts) {
    let name = "scores prompts";
    if session.dialect.logprobs.is_none() || session.dialect.route == Route::Chat {
        facts.ability(name, false, "no log-probabilities of completions");
        return;
    }
    let mut evidence = String::new();
    for answer_tokens in [0, 1] {
        let call = Call::greedy(Prompt::Text(TEXT.into()), answer_tokens);
        match ask(session, &Call { echo: true, ..call }) {
            Ok(exchange) => {
                let answer = &exchange.answer;
                let scored = answer.tokens.iter().filter(|t| t.logprob.is_some()).count() as u64;
                // More than the answer can account for: the prompt's are there too.
                if scored > u64::from(answer_tokens) + 1 {
                    facts.echo = Some(answer_tokens);
                    facts.ability(name, true, format!("{scored} log-probabilities of the prompt"));
                    return;
                }
                evidence = "answered without the prompt's log-probabilities".into();
            }
            Err(error) => evidence = error.to_string(),
        }
    }
    facts.ability(name, false, evidence);
}

/// Whether log-probabilities are those of the model, or of what was drawn from.
fn find_raw(session: &mut Session<'_>, facts: &mut Facts, plain: &Answer) {
    if session.dialect.logprobs.is_none() {
        return;
    }
    let call = Call::greedy(Prompt::Text(TEXT.into()), 1);
    let hot: Result<_, WireError> = ask(session, &Call { sampling: Sampling::Hot, ..call });
    let name = "log-probabilities before temperature";
    let (Ok(hot), Some(cold)) = (&hot, plain.tokens.first()) else {
        facts.ability(name, None, "not answered");
        return;
    };
    let Some(hot) = hot.answer.tokens.first() else {
        facts.ability(name, None, "answered without any");
        return;
    };
    let shared: Vec<f64> = cold
        .top
        .iter()
        .filter_map(|(key, value)| Some((value.value() - hot.top.get(key)?.value()).abs()))
        .collect();
    match shared.into_iter().reduce(f64::max) {
        None => facts.ability(name, None, "no alternative in common at two temperatures"),
        // A temperature of 2 moves values by far more than any drift does.
        Some(largest) => {
            let raw = largest < 0.05;
            facts.raw_logprobs = Some(raw);
            let evidence =
                format!("values at temperatures 0 and 2 differ by at most {largest:.1e}");
            facts.ability(name, raw, evidence);
        }
    }
}
