//! Alone against in a crowd. Cold and warm are two arms: a crowd that also finds another cache would show both at once.

use std::time::Duration;

use super::super::certificate::Arm;
use super::super::plan::groups;
use super::super::probe::Facts;
use super::super::score::{Outcome, Requests, Score, Trial};
use super::super::session::{Crowd, Session};
use super::super::wire::{Answer, Call, Cold};
use super::{Bench, OTHER_START, References, against, alone, same_start, sent};

/// After identical traffic: whatever the server caches of these prompts, it has cached.
pub(crate) fn warm(bench: &mut Bench<'_, '_>, references: &References) -> Outcome {
    let mut score = Score::new(Arm::ConcurrentWarm);
    if !bench.facts.counts_cached {
        score.note("cached tokens are not counted: that requests were equally warm is not proven");
    }
    crowds(bench, &mut score, references, None);
    score.conclude()
}

/// With nothing of the prompt cached, on either side.
pub(crate) fn cold(bench: &mut Bench<'_, '_>) -> Outcome {
    let mut score = Score::new(Arm::ConcurrentCold);
    let Some(way) = bench.session.dialect.cold else {
        score.refuse(why_not_cold(bench.facts));
        return score.conclude();
    };
    let references = cold_references(bench, &mut score);
    if score.differing() > 0 {
        score.note("cold requests differ from each other already alone");
    }
    crowds(bench, &mut score, &references, Some(way));
    score.conclude()
}

fn why_not_cold(facts: &Facts) -> &'static str {
    match facts.counts_cached {
        true => {
            "a prompt that is cached can't be kept from the cache: neither cache_salt nor cache_prompt does it"
        }
        false => "cached tokens are not counted, so that nothing is known to be cold",
    }
}

/// Two cold answers of each prompt, alone, which must be equal.
fn cold_references(bench: &mut Bench<'_, '_>, score: &mut Score) -> References {
    let mut references = References::new();
    for number in 0..bench.options.prompts {
        let mut seen: Vec<(Call, Answer)> = Vec::new();
        for _ in 0..2 {
            let call = Call { cold: Some(bench.session.salt()), ..bench.call(number) };
            match bench.session.one(&call) {
                Ok(exchange) if exchange.answer.cached_tokens == Some(0) => {
                    seen.push((call, exchange.answer));
                }
                Ok(_) => score.void_for("a cold request got tokens from a cache".into()),
                Err(error) => score.void(&error),
            }
        }
        if let [(first, expected), (second, got)] = seen.as_slice()
            && let Some((_, comparison)) = against([expected], got)
            && comparison.difference.is_some()
        {
            alone(bench.session, score, number, (first, expected), (second, got), comparison);
        }
        references.push(seen.into_iter().map(|(_, answer)| answer).collect());
    }
    references
}

fn crowds(
    bench: &mut Bench<'_, '_>,
    score: &mut Score,
    references: &References,
    cold: Option<Cold>,
) {
    let options = bench.options;
    for round in 0..options.rounds {
        for &level in &options.concurrency {
            for group in groups(options.prompts, level, round, options.seed) {
                let calls: Vec<Call> = group
                    .iter()
                    .map(|number| {
                        let salt = cold.map(|_| bench.session.salt());
                        Call { cold: salt, ..bench.call(*number) }
                    })
                    .collect();
                match bench.session.crowd(&calls, Duration::ZERO) {
                    Err(error) => score.void(&error),
                    Ok(crowd) if crowd.in_flight <= 1 => score.unwitnessed(),
                    Ok(crowd) => {
                        score.case();
                        let (session, stagger_ms) = (&*bench.session, 0);
                        judge(session, score, references, &group, &calls, &crowd, stagger_ms);
                    }
                }
            }
        }
    }
}

/// Counts the members of a crowd that met another one.
pub(crate) fn judge(
    session: &Session<'_>,
    score: &mut Score,
    references: &References,
    group: &[u32],
    calls: &[Call],
    crowd: &Crowd,
    stagger_ms: u64,
) {
    for (place, (number, member)) in group.iter().zip(&crowd.members).enumerate() {
        // Fillers have no references.
        let Some(references) = references.get(*number as usize) else { continue };
        if member.in_flight <= 1 {
            continue;
        }
        let same = references.iter().filter(|reference| same_start(reference, &member.answer));
        let Some((expected, comparison)) = against(same, &member.answer) else {
            score.void_for(OTHER_START.into());
            continue;
        };
        let reference = || session.sent(&calls[place]);
        let all = || sent(session, calls);
        let requests = Requests { reference: &reference, crowd: &all, place, stagger_ms };
        score.take(Trial {
            prompt: *number,
            sent: calls.len() as u32,
            in_flight: member.in_flight,
            comparison,
            expected,
            got: &member.answer,
            requests,
        });
    }
}
