//! Is company what makes an answer another one, or does it come from another replica?
//!
//! A balancer that spills over sends a request elsewhere by what is in flight when it comes. So of requests that come together the
//! first at least gets its own answer, whoever joins a request later changes nothing, and what was cached for it is not there where
//! it is sent to. Each is tried, as far as it can be; what could not be tried leaves the difference standing.

use super::arms::concurrent::{self, Kind};
use super::arms::{Bench, against, is_equal};
use super::clusters::{OTHERS_MAX, Sighting, by_prompt, is_mixed, is_stable, others};
use super::compare::{Parts, compare};
use super::session::Member;
use super::stats;
use super::wire::{Answer, Call};

/// Prompts that are asked for more.
const PROMPTS: usize = 4;
/// Further crowds at most.
const LOOKS_MAX: usize = 8;
/// Crowds all of whose answers differ, from which on that is no chance.
const ALL_DIFFER: usize = 2;
/// Requests that further crowds take at most.
const REQUESTS_MAX: u32 = 160;
/// Part of an answer's time after which a request is joined.
const JOIN_AFTER: f64 = 0.35;
/// Requests that are joined at least, those that must differ, and the probability with which a fault as frequent as in the crowds
/// would show in that many.
const TRIES_MIN: u64 = 6;
const JOINED_DIFFER: u32 = 2;
const TRIES_SHOW: f64 = 0.9999;

/// The kind and the size of the smallest crowds that showed a difference, the prompts that differed there, and the share. If only
/// arms that are asked otherwise saw one, `elsewhere` is the size at which they did.
fn smallest(bench: &Bench<'_, '_>, elsewhere: u32) -> (Kind, u32, Vec<u32>, f64) {
    let differing = || bench.seen.iter().filter(|seen| seen.differs());
    let least = differing().min_by_key(|seen| seen.sent);
    let (kind, size) = least.map_or((Kind::Warm, elsewhere), |seen| (seen.kind, seen.sent));
    let all = bench.seen.iter().filter(|seen| seen.kind == kind && seen.sent >= size);
    let (n, of) = all.fold((0, 0), |(n, of), seen| (n + u32::from(seen.differs()), of + 1));
    let mut prompts: Vec<u32> = differing().map(|seen| seen.prompt).collect();
    // A few others make up for prompts that are hit seldom.
    prompts.extend((0..bench.known.len() as u32).filter(|n| is_known(bench, kind, *n)));
    let mut few = Vec::new();
    for prompt in prompts {
        if !few.contains(&prompt) && few.len() < PROMPTS {
            few.push(prompt);
        }
    }
    // New prompts are other ones each time.
    let kind = if kind == Kind::New { Kind::Warm } else { kind };
    (kind, size, few, f64::from(n) / f64::from(of.max(1)))
}

fn is_known(bench: &Bench<'_, '_>, kind: Kind, number: u32) -> bool {
    let known = &bench.known[number as usize];
    if kind == Kind::Cold { known.cold_is_clean } else { known.warm_is_clean }
}

/// More crowds like the smallest that showed a difference, of judged prompts alone, until it can be told whether the same few
/// answers come again. Returns whether all answers of some differ: then company counts for sure.
pub(super) fn look_again(bench: &mut Bench<'_, '_>, elsewhere: u32) -> bool {
    let (mut all_differ, mut requests) = (0, 0);
    for _ in 0..LOOKS_MAX {
        let groups = by_prompt(&bench.seen);
        let is_open = groups.values().all(|group| others(group).len() <= OTHERS_MAX);
        if !is_open {
            return false;
        }
        let (kind, size, prompts, _) = smallest(bench, elsewhere);
        requests += size;
        if is_stable(&groups) && is_mixed(&groups) && requests > 2 * size || requests > REQUESTS_MAX
        {
            return false;
        }
        if prompts.is_empty() {
            return false;
        }
        let prompts: Vec<u32> = prompts.iter().copied().cycle().take(size as usize).collect();
        let members = concurrent::members(bench, kind, size, &prompts);
        let Ok(crowd) = bench.session.crowd(&members) else { return false };
        let mut is_whole = true;
        for (number, met) in prompts.into_iter().zip(crowd.members) {
            let known = &bench.known[number as usize];
            let references = if kind == Kind::Cold { &known.cold } else { &known.warm };
            let found = met.answer.ok().and_then(|got| {
                let (reference, comparison) = against(references, &got)?;
                let (what, load) = ((kind, number), (size, met.in_flight));
                Some(Sighting::of(what, load, reference, &got, &comparison))
            });
            is_whole &= found.as_ref().is_some_and(Sighting::differs);
            bench.seen.extend(found);
        }
        all_differ += usize::from(is_whole);
        if all_differ >= ALL_DIFFER {
            return true;
        }
    }
    false
}

/// Whether company is what counts.
pub(super) fn counts(bench: &mut Bench<'_, '_>, elsewhere: u32) -> bool {
    same_cache(bench, elsewhere).unwrap_or_else(|| joined(bench, elsewhere))
}

/// Whether answers that differ were made with what is cached for them alone: new prompts are asked alone until they are cached, and
/// then in a crowd. `None` if none differed, or nothing counts what is cached.
fn same_cache(bench: &mut Bench<'_, '_>, elsewhere: u32) -> Option<bool> {
    let (_, size, _, _) = smallest(bench, elsewhere);
    let (mut same, mut other, mut requests) = (0, 0, 0);
    let cached = |answer: &Answer| answer.cached_tokens.unwrap_or(0);
    let longest = |n: &u32| bench.known[*n as usize].warm.last().map(cached);
    let like = (0..bench.known.len() as u32).max_by_key(longest)?;
    if longest(&like)? <= 1 {
        return None;
    }
    while same + other < 2 && requests + size <= REQUESTS_MAX / 2 {
        let mut judged: Vec<(Call, Answer)> = Vec::new();
        for _ in 0..size.min(PROMPTS as u32) {
            let prompt = bench.prompts.fresh(bench.session, like);
            let call = bench.facts.call(&prompt, bench.options.answer_tokens);
            bench.ask(&call).ok()?;
            let reference = bench.ask(&call).ok()?;
            if cached(&reference) > 1 {
                judged.push((call, reference));
            }
        }
        requests += size + 2 * judged.len() as u32;
        let calls = judged.iter().cycle().take(if judged.is_empty() { 0 } else { size as usize });
        let members: Vec<Member> =
            calls.map(|(call, _)| Member::at_once(call.clone(), None)).collect();
        if members.is_empty() {
            return None;
        }
        let crowd = bench.session.crowd(&members).ok()?;
        for (met, (_, reference)) in crowd.members.into_iter().zip(judged.iter().cycle()) {
            let Ok(got) = met.answer else { continue };
            if compare(reference, &got, Parts::All).difference.is_some() {
                match cached(&got) >= cached(reference) {
                    true => same += 1,
                    false => other += 1,
                }
            }
        }
    }
    // An answer elsewhere leaves its prompt cached there, for the next of the same crowd: one that finds nothing tells more.
    (same + other > 0).then_some(other == 0)
}

/// Whether requests that are alone when they begin, and are joined by as many as made a difference, get other answers too.
fn joined(bench: &mut Bench<'_, '_>, elsewhere: u32) -> bool {
    let (kind, size, prompts, rate) = smallest(bench, elsewhere);
    let delay = bench.usual_time().mul_f64(JOIN_AFTER);
    let tries = stats::trials_for(rate.clamp(0.02, 0.95), TRIES_SHOW).max(TRIES_MIN);
    let (mut seen, mut differing) = (0, 0);
    if prompts.is_empty() {
        return true;
    }
    for i in 0..tries as usize {
        let number = prompts[i % prompts.len()];
        let mut members = concurrent::members(bench, kind, size, &[number]);
        for member in members.iter_mut().skip(1) {
            member.delay = delay;
        }
        let Ok(crowd) = bench.session.crowd(&members) else { break };
        let Some(met) = crowd.members.into_iter().next() else { break };
        let Ok(got) = met.answer else { continue };
        let known = &bench.known[number as usize];
        let references = if kind == Kind::Cold { &known.cold } else { &known.warm };
        let differs = references.iter().any(|reference| !is_equal(reference, &got));
        seen += u32::from(differs || met.in_flight > 1);
        differing += u32::from(differs);
        // One may have been late, and joined the others.
        if differing >= JOINED_DIFFER {
            return true;
        }
    }
    seen == 0
}
