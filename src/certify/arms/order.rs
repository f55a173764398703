//! The same crowd, arriving in one order and in the reverse: who came first must not matter.

use std::time::Duration;

use super::super::certificate::{Arm, New};
use super::super::compare::{Parts, compare};
use super::super::plan::{ORDERED, groups, smallest_level};
use super::super::score::{Outcome, Requests, Score, Trial};
use super::super::session::Member;
use super::super::wire::{Answer, Call};
use super::concurrent::{Kind, members};
use super::{Bench, OTHER_START, same_prompt, same_start};

/// Between one arrival and the next: long enough to be in order, short enough to meet.
const STAGGER: Duration = Duration::from_millis(2);

/// An answer of a crowd, and whether it met others.
type Arrived = Option<(Answer, u32)>;

pub(crate) fn run(bench: &mut Bench<'_, '_>) -> Outcome {
    let mut score = Score::new(Arm::Order);
    let options = bench.options;
    let level = smallest_level(options);
    if let Some(why) = bench.session.refuses(level) {
        score.refuse(why);
        return score.conclude();
    }
    let prompts = options.prompts.min(ORDERED);
    for group in groups(prompts, level.min(prompts), 0, options.seed ^ 1) {
        let mut there = members(bench, Kind::Warm, level, &group);
        stagger(&mut there);
        let Some(forward) = arrive(bench, &mut score, &there) else { continue };
        let mut back: Vec<Member> = there.iter().rev().cloned().collect();
        stagger(&mut back);
        let Some(mut backward) = arrive(bench, &mut score, &back) else { continue };
        score.case();
        backward.reverse();
        let pairs = forward.iter().zip(&backward).take(group.len());
        for (i, (forward, backward)) in pairs.enumerate() {
            let place = back.len() - 1 - i;
            judge(bench, &mut score, group[i], &back, place, (forward, backward));
        }
    }
    score.conclude()
}

fn stagger(members: &mut [Member]) {
    for (i, member) in members.iter_mut().enumerate() {
        member.delay = STAGGER * i as u32;
    }
}

/// Sends a crowd in this order; `None` if it was not sent, or nobody met.
fn arrive(
    bench: &mut Bench<'_, '_>,
    score: &mut Score,
    members: &[Member],
) -> Option<Vec<Arrived>> {
    let crowd = match bench.session.crowd(members) {
        Err(error) => {
            score.void(&error);
            return None;
        }
        Ok(crowd) => crowd,
    };
    if crowd.in_flight <= 1 {
        score.unwitnessed();
        return None;
    }
    let sent = members.len() as u32;
    let arrived = crowd.members.into_iter().map(|met| match met.answer {
        Ok(answer) => Some((answer, met.in_flight)),
        Err(error) => {
            score.void_at(sent, &error);
            None
        }
    });
    Some(arrived.collect())
}

fn judge(
    bench: &Bench<'_, '_>,
    score: &mut Score,
    prompt: u32,
    back: &[Member],
    place: usize,
    (forward, backward): (&Arrived, &Arrived),
) {
    let (Some((expected, in_flight)), Some((got, other_in_flight))) = (forward, backward) else {
        return;
    };
    let is_same = match bench.cached_matters {
        true => same_start(expected, got),
        false => same_prompt(expected, got),
    };
    if !is_same {
        score.void_for(OTHER_START.into());
        return;
    }
    let calls: Vec<Call> = back.iter().map(|member| member.call.clone()).collect();
    let delays_ms: Vec<u64> = back.iter().map(|m| m.delay.as_millis() as u64).collect();
    let sent = |call: &Call| bench.session.sent(call);
    let requests = Requests {
        sent: &sent,
        reference: &calls[place],
        crowd: &calls,
        place,
        delays_ms: &delays_ms,
        new: New::default(),
    };
    score.take(Trial {
        prompt,
        sent: back.len() as u32,
        in_flight: (*in_flight).min(*other_in_flight),
        comparison: compare(expected, got, Parts::All),
        expected,
        got,
        requests,
    });
}
