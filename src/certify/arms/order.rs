//! The same crowd, arriving in one order and in the reverse: who came first must not matter.

use std::time::Duration;

use super::super::certificate::Arm;
use super::super::plan::groups;
use super::super::score::{Outcome, Score};
use super::super::session::Crowd;
use super::super::wire::{Answer, Call};
use super::{Bench, References, concurrent};

/// Between one arrival and the next: long enough to be in order, short enough to meet.
const STAGGER: Duration = Duration::from_millis(2);

pub(crate) fn run(bench: &mut Bench<'_, '_>) -> Outcome {
    let mut score = Score::new(Arm::Order);
    let options = bench.options;
    let level = options.concurrency.iter().copied().max().unwrap_or(2).min(options.prompts);
    for round in 0..options.rounds {
        // A group that is full of judged prompts, since level is no larger than their number.
        let group = groups(options.prompts, level, round, options.seed ^ 1).swap_remove(0);
        let reverse: Vec<u32> = group.iter().rev().copied().collect();
        let (Some((_, forward)), Some((calls, backward))) =
            (arrive(bench, &mut score, &group), arrive(bench, &mut score, &reverse))
        else {
            continue;
        };
        score.case();
        let references = references(&group, &forward);
        let stagger_ms = STAGGER.as_millis() as u64;
        let session = &*bench.session;
        concurrent::judge(
            session,
            &mut score,
            &references,
            &reverse,
            &calls,
            &backward,
            stagger_ms,
        );
    }
    score.conclude()
}

/// Sends a group in this order; `None` if it does not count.
fn arrive(
    bench: &mut Bench<'_, '_>,
    score: &mut Score,
    group: &[u32],
) -> Option<(Vec<Call>, Crowd)> {
    let calls: Vec<Call> = group.iter().map(|number| bench.call(*number)).collect();
    match bench.session.crowd(&calls, STAGGER) {
        Err(error) => score.void(&error),
        Ok(crowd) if crowd.in_flight <= 1 => score.unwitnessed(),
        Ok(crowd) => return Some((calls, crowd)),
    }
    None
}

/// The first crowd's answers, by prompt.
fn references(group: &[u32], crowd: &Crowd) -> References {
    let n = group.iter().max().map_or(0, |number| *number as usize + 1);
    let mut references: References = vec![Vec::new(); n];
    for (number, member) in group.iter().zip(&crowd.members) {
        // One that met nobody is no crowd's answer.
        let met = (member.in_flight > 1).then(|| member.answer.clone());
        references[*number as usize] = met.into_iter().collect::<Vec<Answer>>();
    }
    references
}
