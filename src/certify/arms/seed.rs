//! A seeded draw alone against in a crowd, after it was seen that the seed is heeded: two seeds give two answers, and one
//! seed one.

use std::time::Duration;

use super::super::certificate::Arm;
use super::super::compare::{Parts, compare};
use super::super::plan::FEW;
use super::super::score::{Outcome, Score};
use super::super::wire::{Answer, Call, Sampling, WireError};
use super::{Bench, References, concurrent};

pub(crate) fn run(bench: &mut Bench<'_, '_>) -> Outcome {
    let mut score = Score::new(Arm::Seed);
    let group: Vec<u32> = (0..bench.options.prompts.min(FEW)).collect();
    let mut references = References::new();
    let mut other_seed_differs = false;
    for number in &group {
        let call = seeded(bench, *number, 0);
        let other = seeded(bench, *number, 1);
        let mut ask = |call: &Call| bench.session.one(call).map(|exchange| exchange.answer);
        let asked = |ask: &mut dyn FnMut(&Call) -> Result<Answer, WireError>| {
            Ok::<_, WireError>([ask(&call)?, ask(&call)?, ask(&other)?])
        };
        let [first, again, other] = match asked(&mut ask) {
            Ok(answers) => answers,
            Err(error) => {
                score.void(&error);
                references.push(Vec::new());
                continue;
            }
        };
        if compare(&first, &again, Parts::All).difference.is_some() {
            score.refuse("one seed gave two answers, alone: the seed is not heeded");
            return score.conclude();
        }
        other_seed_differs |= tokens(&first) != tokens(&other);
        references.push(vec![first, again]);
    }
    if !other_seed_differs {
        let same = "two seeds gave the same answers: the seed is not heeded, or nothing is drawn";
        score.refuse(score.unanswered().unwrap_or_else(|| same.into()));
        return score.conclude();
    }
    for _ in 0..bench.options.rounds {
        let calls: Vec<Call> = group.iter().map(|number| seeded(bench, *number, 0)).collect();
        match bench.session.crowd(&calls, Duration::ZERO) {
            Err(error) => score.void(&error),
            Ok(crowd) if crowd.in_flight <= 1 => score.unwitnessed(),
            Ok(crowd) => {
                score.case();
                let session = &*bench.session;
                concurrent::judge(session, &mut score, &references, &group, &calls, &crowd, 0);
            }
        }
    }
    score.conclude()
}

fn seeded(bench: &mut Bench<'_, '_>, number: u32, which: u64) -> Call {
    // Within 31 bits: some servers take no more.
    let seed = (bench.options.seed.wrapping_mul(2) + which + 17) & 0x7fff_ffff;
    Call { sampling: Sampling::Seeded(seed), ..bench.call(number) }
}

/// What was drawn.
fn tokens(answer: &Answer) -> (Vec<&super::super::wire::Key>, &str) {
    (answer.tokens.iter().map(|token| &token.key).collect(), &answer.text)
}
