//! Caches: of prefixes, which the server may count and may be told to leave alone, and of whole answers, in front of it.

use std::time::Duration;

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

/// Everything about caches.
pub(super) fn find_out(session: &mut Session<'_>, facts: &mut Facts) {
    let call = new_call(session);
    let (Ok(fresh), Ok(again)) = (ask(session, &call), ask(session, &call)) else {
        facts.ability("counts cached tokens", None, "not answered");
        return;
    };
    facts.replayed = replayed(session, &fresh, &again);
    let told = match &facts.replayed {
        Some(why) => (Some(true), why.clone()),
        None => (Some(false), "a repeated request has an identity and a time of its own".into()),
    };
    facts.ability("cache of whole answers", told.0, told.1);
    let Some(cached) = again.answer.cached_tokens else {
        facts.ability("counts cached tokens", None, "no counter in the usage");
        return;
    };
    facts.counts_cached = true;
    let first = fresh.answer.cached_tokens.unwrap_or(0);
    facts.ability(
        "counts cached tokens",
        true,
        format!("{first}, then {cached} for the same prompt"),
    );
    if cached == 0 {
        session.dialect.cold = Some(Cold::Always);
        facts.ability("keeps a prompt cold", true, "nothing is cached for a prompt sent twice");
        return;
    }
    for (way, field) in [(Cold::Salt, "cache_salt"), (Cold::Refuse, "cache_prompt")] {
        session.dialect.cold = Some(way);
        let salt = session.salt();
        let cold = ask(session, &Call { cold: Some(salt), ..call.clone() });
        if cold.is_ok_and(|exchange| exchange.answer.cached_tokens == Some(0)) {
            let evidence =
                format!("with {field}, 0 tokens of a cached prompt are taken from the cache");
            facts.ability("keeps a prompt cold", true, evidence);
            return;
        }
    }
    session.dialect.cold = None;
    facts.ability("keeps a prompt cold", false, "neither cache_salt nor cache_prompt does it");
}

/// A request that nobody sent before.
fn new_call(session: &mut Session<'_>) -> Call {
    let salt = session.salt();
    let prompt = Prompt::Text(format!(
        "{salt:016x} is a number that nobody asked about before; it stands here so that the rest of this text is new too."
    ));
    Call::greedy(prompt, TOKENS)
}

/// Whether the second answer is the first one again, not another one that is equal.
fn replayed(session: &mut Session<'_>, fresh: &Exchange, again: &Exchange) -> Option<String> {
    let id = fresh.answer.id.as_ref().filter(|id| !id.is_empty());
    if id.is_some() && fresh.answer.id == again.answer.id {
        return Some("two requests got an answer of the same id".into());
    }
    let mut times = Times { new: fresh.duration(), again: again.duration() };
    // Any one request may have met a hiccup of the machine: only what is so each time is believed.
    for _ in 0..REPLAY_PAIRS {
        if !times.are_of_a_store() {
            return None;
        }
        let call = new_call(session);
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
