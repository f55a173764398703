//! Caches: of prefixes, which the server may count and may be told to leave alone, and of whole answers, in front of it.

use std::time::Duration;

use super::super::arms::is_cold;
use super::super::gauge::Hits;
use super::super::session::Session;
use super::super::wire::{Call, Cold, Exchange, Prompt};
use super::{Facts, ask};

/// Longest time of an answer that a cache of answers is believed to give.
const REPLAY_MAX: Duration = Duration::from_millis(5);
/// How much longer a fresh answer takes then, at least.
const REPLAY_RATIO: u32 = 20;
/// Further pairs of requests that must show the same.
const REPLAY_PAIRS: usize = 3;
const TOKENS: u32 = 12;
/// Characters of the text that shows whether prompts are cached: of several blocks of any size that is in use.
const CHARACTERS: usize = 6000;
/// The least that is sent where the context is small.
const CHARACTERS_MIN: usize = 160;

/// Everything about caches.
pub(super) fn find_out(session: &mut Session<'_>, facts: &mut Facts) {
    let hits = Hits::find(session.client.clone());
    let counted = |hits: &Option<Hits>| hits.as_ref().and_then(Hits::now);
    let call = new_call(session, facts);
    let fresh = ask(session, &call);
    let before = counted(&hits);
    let (Ok(fresh), Ok(again)) = (fresh, ask(session, &call)) else {
        facts.ability("counts cached tokens", None, "not answered");
        return;
    };
    let rise = before.zip(counted(&hits)).map(|(before, now)| now.saturating_sub(before));
    if let (Some(tokens), Prompt::Text(text)) = (fresh.answer.prompt_tokens, &call.prompt) {
        facts.characters_a_token = (text.len() as f64 / tokens.max(1) as f64).clamp(1.0, 12.0);
    }
    facts.replayed = replayed(session, facts, &fresh, &again);
    let told = match &facts.replayed {
        Some(why) => (Some(true), why.clone()),
        None => (Some(false), "a repeated request has an identity and a time of its own".into()),
    };
    facts.ability("cache of whole answers", told.0, told.1);
    let n = fresh.answer.prompt_tokens.map_or("?".into(), |n| n.to_string());
    match (again.answer.cached_tokens, &hits, rise) {
        (Some(cached), _, _) => {
            facts.counts_cached = true;
            let first = fresh.answer.cached_tokens.unwrap_or(0);
            let evidence = format!("{first}, then {cached} for the same prompt of {n} tokens");
            facts.ability("counts cached tokens", true, evidence);
            if cached > first {
                facts.hits_counted = Some(format!(
                    "{cached} of {n} tokens of a prompt sent again came from the cache"
                ));
            }
        }
        (None, Some(hits), Some(rise)) => {
            let name = hits.name;
            let evidence = format!(
                "no counter in the usage; {name} rose by {rise} for a prompt of {n} tokens sent again"
            );
            facts.ability("counts cached tokens", None, evidence.clone());
            facts.hits_counted = (rise > 0).then_some(evidence);
        }
        _ => facts.ability("counts cached tokens", None, "no counter in usage or metrics"),
    }
    find_cold(session, facts, &call, again.answer.cached_tokens, &hits);
}

/// How a prompt that was sent before is kept from the cache. A field that is ignored is found out by whatever counter there is;
/// without any, vLLM's own field is believed of vLLM alone.
fn find_cold(
    session: &mut Session<'_>,
    facts: &mut Facts,
    call: &Call,
    cached: Option<u64>,
    hits: &Option<Hits>,
) {
    let name = "keeps a prompt cold";
    if cached == Some(0) {
        session.dialect.cold = Some(Cold::Always);
        facts.ability(name, true, "nothing is cached for a prompt sent twice");
        return;
    }
    for (way, field) in [(Cold::Salt, "cache_salt"), (Cold::Refuse, "cache_prompt")] {
        session.dialect.cold = Some(way);
        let salt = session.salt();
        let before = hits.as_ref().and_then(Hits::now);
        let Ok(cold) = ask(session, &Call { cold: Some(salt), ..call.clone() }) else { continue };
        let after = hits.as_ref().and_then(Hits::now);
        let evidence = match (cold.answer.cached_tokens, before.zip(after)) {
            (Some(_), _) if is_cold(&cold.answer) => {
                format!("with {field}, 0 tokens of a cached prompt are taken from the cache")
            }
            (None, Some((before, after))) if before == after && facts.hits_counted.is_some() => {
                format!("with {field}, no hit of a cached prompt is counted")
            }
            (None, None) if way == Cold::Salt && facts.is_vllm => {
                format!("{field} is a field of vLLM's; no counter shows that it is heeded")
            }
            _ => continue,
        };
        facts.ability(name, true, evidence);
        return;
    }
    session.dialect.cold = None;
    let evidence =
        "neither cache_salt nor cache_prompt is known to do it: only new prompts are cold";
    facts.ability(name, false, evidence);
}

/// A request that nobody sent before, of several blocks of any cache.
fn new_call(session: &mut Session<'_>, facts: &Facts) -> Call {
    let salt = session.salt();
    let room = facts.server.context_max.map_or(CHARACTERS, |context| context as usize / 2);
    let mut text = format!("{salt:016x} is a number that nobody asked about before;");
    let mut line = 0;
    while text.len() < room.clamp(CHARACTERS_MIN, CHARACTERS) {
        line += 1;
        text.push_str(&format!(" line {line} stands here so that what follows is new too,"));
    }
    text.truncate(room.clamp(CHARACTERS_MIN, CHARACTERS));
    Call::greedy(Prompt::Text(text), TOKENS)
}

/// Whether the second answer is the first one again, not another one that is equal.
fn replayed(
    session: &mut Session<'_>,
    facts: &Facts,
    fresh: &Exchange,
    again: &Exchange,
) -> Option<String> {
    let id = fresh.answer.id.as_ref().filter(|id| !id.is_empty());
    if id.is_some() && fresh.answer.id == again.answer.id {
        // Some servers give every answer the same id, which tells nothing.
        let call = new_call(session, facts);
        let other = ask(session, &call).ok()?;
        if other.answer.id != fresh.answer.id {
            return Some(
                "the same request got an answer of the same id, another request did not".into(),
            );
        }
    }
    let mut times = Times { new: fresh.duration(), again: again.duration() };
    // Any one request may have met a hiccup of the machine: only what is so each time is believed.
    for _ in 0..REPLAY_PAIRS {
        if !times.are_of_a_store() {
            return None;
        }
        let call = new_call(session, facts);
        let (Ok(fresh), Ok(again)) = (ask(session, &call), ask(session, &call)) else {
            return None;
        };
        times.new = times.new.min(fresh.duration());
        times.again = times.again.max(again.duration());
    }
    times.are_of_a_store().then(|| {
        let [new, again] = [times.new, times.again].map(|time| time.as_secs_f64() * 1e3);
        format!(
            "at least {new:.1} ms for a new request, at most {again:.1} ms for the same again, {TOKENS} tokens each"
        )
    })
}

/// The shortest time of a new request, and the longest of one that was sent before.
#[derive(Clone, Copy)]
struct Times {
    new: Duration,
    again: Duration,
}

impl Times {
    /// A cache of prefixes saves the prompt's work, never that of the answer's tokens.
    fn are_of_a_store(self) -> bool {
        self.again <= REPLAY_MAX && self.new >= self.again * REPLAY_RATIO
    }
}
