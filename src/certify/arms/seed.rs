//! A seeded draw alone against in a crowd, after it was seen that the seed is heeded: two seeds give two answers, and one
//! seed one.

use std::time::Duration;

use super::super::certificate::{Arm, New};
use super::super::compare::{Parts, compare};
use super::super::plan::{FEW, smallest_level};
use super::super::score::{Outcome, Requests, Score, Trial};
use super::super::session::Member;
use super::super::wire::{Answer, Call, Key, Sampling, WireError};
use super::{Bench, OTHER_START, against, same_prompt};

pub(crate) fn run(bench: &mut Bench<'_, '_>) -> Outcome {
    let mut score = Score::new(Arm::Seed);
    let mut references: Vec<(usize, Call, Vec<Answer>, Duration)> = Vec::new();
    let mut other_seed_differs = false;
    for number in 0..bench.known.len().min(FEW as usize) {
        let known = &bench.known[number];
        let took = known.took;
        let (call, other) = (seeded(bench, &known.call, 0), seeded(bench, &known.call, 1));
        let mut asked =
            || Ok::<_, WireError>([bench.ask(&call)?, bench.ask(&call)?, bench.ask(&other)?]);
        let [first, again, other] = match asked() {
            Ok(answers) => answers,
            Err(error) => {
                score.void(&error);
                continue;
            }
        };
        if compare(&first, &again, Parts::All).difference.is_some() {
            score.refuse("one seed gave two answers, alone: the seed is not heeded");
            return score.conclude();
        }
        other_seed_differs |= tokens(&first) != tokens(&other);
        references.push((number, call, vec![first, again], took));
    }
    if !other_seed_differs {
        let same = "two seeds gave the same answers: the seed is not heeded, or nothing is drawn";
        score.refuse(score.unanswered().unwrap_or_else(|| same.into()));
        return score.conclude();
    }
    let level = smallest_level(bench.options);
    match bench.session.refuses(level) {
        Some(why) => score.refuse(why),
        None => crowd(bench, &mut score, level, &references),
    }
    score.conclude()
}

/// One crowd of this size: the judged requests, and others that draw too.
fn crowd(
    bench: &mut Bench<'_, '_>,
    score: &mut Score,
    level: u32,
    references: &[(usize, Call, Vec<Answer>, Duration)],
) {
    let judged = references.iter().take(level as usize);
    let mut members: Vec<Member> =
        judged.map(|(_, call, _, took)| Member::at_once(call.clone(), Some(*took))).collect();
    for number in 0..level - members.len() as u32 {
        let call = bench.filler(number);
        members.push(Member::at_once(seeded(bench, &call, 2), None));
    }
    let crowd = match bench.session.crowd(&members) {
        Ok(crowd) => crowd,
        Err(error) => return score.void(&error),
    };
    match crowd.in_flight > 1 {
        true => score.case(),
        false => score.unwitnessed(),
    }
    let calls: Vec<Call> = members.iter().map(|member| member.call.clone()).collect();
    let delays_ms = vec![0; calls.len()];
    let judged = references.iter().zip(crowd.members).enumerate();
    for (place, ((number, call, seen, _), met)) in judged {
        let got = match met.answer {
            Ok(got) => got,
            Err(error) => {
                score.void_at(level, &error);
                continue;
            }
        };
        let same = seen.iter().filter(|reference| same_prompt(reference, &got));
        let Some((expected, comparison)) = against(same, &got) else {
            score.void_for(OTHER_START.into());
            continue;
        };
        let session = &*bench.session;
        let sent = |call: &Call| session.sent(call);
        let requests = Requests {
            sent: &sent,
            reference: call,
            crowd: &calls,
            place,
            delays_ms: &delays_ms,
            new: New::default(),
        };
        score.take(Trial {
            prompt: *number as u32,
            sent: level,
            in_flight: met.in_flight,
            comparison,
            expected,
            got: &got,
            requests,
        });
    }
}

fn seeded(bench: &Bench<'_, '_>, call: &Call, which: u64) -> Call {
    // Within 31 bits: some servers take no more.
    let seed = (bench.options.seed.wrapping_mul(2) + which + 17) & 0x7fff_ffff;
    Call { sampling: Sampling::Seeded(seed), ..call.clone() }
}

/// What was drawn.
fn tokens(answer: &Answer) -> (Vec<&Key>, &str) {
    (answer.tokens.iter().map(|token| &token.key).collect(), &answer.text)
}
