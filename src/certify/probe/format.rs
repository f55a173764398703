//! Endpoint, fields and formats: what a request may hold, and what an answer does.

mod endings;
mod fields;
mod streams;

use serde::Deserialize;
use serde_json::json;

use super::super::error::CertifyError;
use super::super::options::Api;
use super::super::session::Session;
use super::super::wire::client::Place;
use super::super::wire::{
    Answer, Call, Client, Dialect, Key, Prompt, Records, Route, Sampling, WireError,
};
use super::{Facts, Tokenize, ask};

const TEXT: &str = "The quick brown fox jumps over the lazy dog, and then ";
/// Another one, of another length.
const OTHER_TEXT: &str = "A list of five rivers: ";
const TOKENS: u32 = 6;
/// Enough for a stream to have chunks of several tokens.
const LONG_TOKENS: u32 = 24;
const LOGPROBS: &str = "log-probabilities";

fn greedy(text: &str, answer_tokens: u32) -> Call {
    Call::greedy(Prompt::Text(text.into()), answer_tokens)
}

/// Everything about formats.
pub(super) fn find_out(
    session: &mut Session<'_>,
    facts: &mut Facts,
    api: Api,
) -> Result<(), CertifyError> {
    let text = greedy(TEXT, TOKENS);
    find_route(session, facts, &text, api)?;
    find_logprobs(session, facts, &text);
    find_fields(session, facts, &text);
    let long = greedy(TEXT, LONG_TOKENS);
    let Ok(plain) = ask(session, &long) else {
        return Err(CertifyError::Unusable(
            "the same request was answered once, and then no more".into(),
        ));
    };
    name_tokens(facts, &plain.answer);
    streams::look_at_values(session, facts, &plain.answer);
    find_ids(session, facts, &plain.answer);
    streams::find(session, facts, &long, &plain.answer);
    find_seed(session, facts);
    find_many(session, facts);
    find_echo(session, facts);
    find_raw(session, facts, &plain.answer);
    Ok(())
}

/// Completions if there are any: they take a prompt as it is. Chat puts a template around it.
fn find_route(
    session: &mut Session<'_>,
    facts: &mut Facts,
    call: &Call,
    api: Api,
) -> Result<(), CertifyError> {
    let routes: &[Route] = match api {
        Api::Auto => &[Route::Completions, Route::Chat],
        Api::Completions => &[Route::Completions],
        Api::Chat => &[Route::Chat],
    };
    let mut refused = Vec::new();
    let before = session.dialect.clone();
    for route in routes {
        // What one endpoint refuses, the other may take.
        session.dialect = Dialect { route: *route, ..before.clone() };
        let name = match route {
            Route::Completions => "completions",
            Route::Chat => "chat completions",
        };
        let noted = (facts.server.abilities.len(), facts.notes.len());
        let mut asked = fields::settle(session, facts, call, &fields::is_optional);
        if matches!(asked, Err(WireError::Ended(_))) && endings::find(session, facts, call) {
            asked = fields::settle(session, facts, call, &fields::is_optional);
        }
        match asked {
            Ok(_) => {
                facts.ability(name, true, "answered");
                if *route == Route::Chat {
                    let note = "chat only: a template that is not seen is part of each prompt";
                    facts.notes.push(note.into());
                }
                return Ok(());
            }
            Err(error) => {
                facts.server.abilities.truncate(noted.0);
                facts.notes.truncate(noted.1);
                facts.ability(name, false, error.to_string());
                refused.push(format!("{name}: {error}"));
                if !error.is_refusal() {
                    break;
                }
            }
        }
    }
    let (url, refused) = (&facts.server.url, refused.join("; "));
    Err(CertifyError::Unusable(format!("{url}: no completion: {refused}")))
}

/// Five alternatives, which all servers give, or as many as it takes to have any.
fn find_logprobs(session: &mut Session<'_>, facts: &mut Facts, call: &Call) {
    let mut evidence = String::new();
    let most = session.alternatives();
    let fewer = [5, 1, 0].into_iter().filter(|n| *n < most);
    for alternatives in [most].into_iter().chain(fewer) {
        session.dialect.logprobs = Some(alternatives);
        // What is asked for is not left out; how many alternatives may be the server's choice.
        let may_go =
            |name: &str| name != "logprobs" && name != "max_tokens" && fields::is_optional(name);
        match fields::settle(session, facts, call, &may_go) {
            Ok(exchange) if exchange.answer.tokens.iter().any(|token| token.logprob.is_some()) => {
                let most = exchange.answer.tokens.iter().map(|token| token.top.len()).max();
                let most = most.unwrap_or(0);
                let evidence = format!("asked for {alternatives} alternatives, got up to {most}");
                facts.ability(LOGPROBS, true, evidence);
                return;
            }
            Ok(_) => evidence = "answered without any".into(),
            Err(error) => evidence = error.to_string(),
        }
    }
    session.dialect.logprobs = None;
    facts.ability(LOGPROBS, false, evidence);
}

/// A field of the dialect, for switching it on and off.
type Field = fn(&mut Dialect) -> &mut bool;
/// What an ability is called, the field that stands for it, and the names by which it is asked for.
type Group = (&'static str, Field, &'static [&'static str]);

/// Fields beyond OpenAI's: taken only if they are not refused, and known only if they show in the answer.
fn find_fields(session: &mut Session<'_>, facts: &mut Facts, call: &Call) {
    let groups: [Group; 3] = [
        (
            "token ids in answers",
            |dialect| &mut dialect.return_ids,
            &["return_token_ids", "return_tokens_as_token_ids"],
        ),
        ("fixed length of answers", |dialect| &mut dialect.fixed_length, &["ignore_eos"]),
        (
            "top_k, min_p and repetition penalty",
            |dialect| &mut dialect.extra_sampling,
            &["top_k", "min_p", "repetition_penalty", "repeat_penalty"],
        ),
    ];
    for (i, (name, field, names)) in groups.into_iter().enumerate() {
        let (before, noted) = (session.dialect.clone(), facts.server.abilities.len());
        *field(&mut session.dialect) = true;
        let asked = fields::settle(session, facts, call, &|name| names.contains(&name));
        // With every name refused there is nothing left of it.
        let is_left = names.iter().any(|name| !session.dialect.left_out.contains(*name));
        let (keep, known, evidence) = match asked {
            Err(error) => (false, Some(false), error.to_string()),
            Ok(_) if !is_left => {
                let last = facts.server.abilities.last();
                let why = last.map(|a| a.evidence.trim_start_matches("left out, ").to_owned());
                facts.server.abilities.truncate(noted);
                (false, Some(false), why.unwrap_or_default())
            }
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
        if !keep {
            session.dialect = before;
        }
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

/// Whether seeds are taken. Whether they are heeded is an arm's question.
fn find_seed(session: &mut Session<'_>, facts: &mut Facts) {
    let call = Call { sampling: Sampling::Seeded(17), ..greedy(TEXT, 2) };
    if let Err(error) = fields::settle(session, facts, &call, &|name| name == "seed") {
        facts.ability("seeded draws", false, error.to_string());
    }
}

/// Two prompts in one request.
fn find_many(session: &mut Session<'_>, facts: &mut Facts) {
    let name = "many prompts in a request";
    if session.dialect.route == Route::Chat {
        facts.ability(name, false, "a chat has one prompt");
        return;
    }
    let calls = [greedy(TEXT, TOKENS), greedy(OTHER_TEXT, TOKENS)];
    match session.many(&calls, None).map(|many| many.answers) {
        Ok(answers) if answers.iter().any(|answer| answer.records == Records::Partial) => {
            facts.ability(name, false, "answered with records that do not spell the texts");
        }
        Ok(answers) => {
            facts.many_prompts = true;
            facts.ability(name, true, format!("{} answers to as many", answers.len()));
        }
        Err(error) => facts.ability(name, false, error.to_string()),
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

#[cfg(test)]
mod tests;
