//! Alone against as one of many prompts of one request: the way in which a client makes a batch by itself.

use std::time::Duration;

use super::super::certificate::{Arm, New};
use super::super::compare::{Parts, compare};
use super::super::score::{Outcome, Requests, Score, Trial};
use super::super::wire::Call;
use super::{Bench, against};

pub(crate) fn run(bench: &mut Bench<'_, '_>) -> Outcome {
    let mut score = Score::new(Arm::ManyPrompts);
    if !bench.facts.many_prompts {
        score.refuse("the server takes no request of many prompts");
        return score.conclude();
    }
    let plain = |call: &Call| Call { stream: false, ..call.clone() };
    let calls: Vec<Call> = bench.known.iter().map(|known| plain(&known.call)).collect();
    let alone: Duration = bench.known.iter().map(|known| known.took).sum();
    let many = match bench.session.many(&calls, Some(alone)) {
        Ok(many) => many,
        Err(error) => {
            score.void(&error);
            return score.conclude();
        }
    };
    match many.in_flight > 1 {
        true => score.case(),
        false => score.unwitnessed(),
    }
    let delays_ms = vec![0; calls.len()];
    for (number, got) in many.answers.iter().enumerate() {
        let known = &bench.known[number];
        if !known.warm_is_clean {
            continue;
        }
        // Counters are of the whole request, and none of its answers'.
        let differs = against(&known.warm, got).is_some_and(|(_, c)| c.difference.is_some());
        let again = if differs { bench.ask(&plain(&calls[number])).ok() } else { None };
        let Some(expected) = again.as_ref().or(bench.known[number].warm.last()) else { continue };
        let comparison = compare(expected, got, Parts::Content);
        let session = &*bench.session;
        let sent = |call: &Call| session.sent(call);
        let requests = Requests {
            sent: &sent,
            reference: &calls[number],
            crowd: &calls,
            place: number,
            delays_ms: &delays_ms,
            new: New::default(),
        };
        score.take(Trial {
            prompt: number as u32,
            sent: calls.len() as u32,
            in_flight: many.in_flight,
            comparison,
            expected,
            got,
            requests,
        });
    }
    score.conclude()
}
