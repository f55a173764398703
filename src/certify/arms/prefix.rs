//! A prompt that was never sent against the same prompt once it is cached. A hit must be proven by the server's counter.

use super::super::certificate::Arm;
use super::super::plan::{FEW, FRESH};
use super::super::score::{Outcome, Score};
use super::super::wire::{Answer, Call};
use super::{Bench, against, alone};

/// Times that a prompt is sent.
const TIMES: usize = 3;

pub(crate) fn run(bench: &mut Bench<'_, '_>) -> Outcome {
    let mut score = Score::new(Arm::Prefix);
    if !bench.facts.counts_cached {
        score.refuse("cached tokens are not counted: a hit can't be proven");
        return score.conclude();
    }
    let mut hits = 0;
    let prompts = bench.options.prompts.min(FEW);
    for number in 0..prompts {
        // Lengths of a whole block and more: some by one token, so that one is left to compute after a hit.
        let fresh = FRESH + [0, 2, 5, 1][number as usize % 4];
        let call = bench.call(fresh);
        let Some(seen) = send(bench, &mut score, &call) else { continue };
        let Some((first, later)) = seen.split_first() else { continue };
        let cold = first.cached_tokens.unwrap_or(0);
        for got in later {
            let Some(cached) = got.cached_tokens.filter(|cached| *cached > cold) else { continue };
            hits = hits.max(cached);
            score.case();
            if let Some((expected, comparison)) = against([first], got) {
                alone(
                    bench.session,
                    &mut score,
                    number,
                    (&call, expected),
                    (&call, got),
                    comparison,
                );
            }
        }
    }
    match hits {
        0 => {
            let none = "no cache hit was proven: the counter stayed where it was";
            score.refuse(score.unanswered().unwrap_or_else(|| none.into()));
        }
        _ => score.note(format!("hits of up to {hits} tokens, by the server's counter")),
    }
    score.conclude()
}

fn send(bench: &mut Bench<'_, '_>, score: &mut Score, call: &Call) -> Option<Vec<Answer>> {
    let mut seen = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        match bench.session.one(call) {
            Ok(exchange) => seen.push(exchange.answer),
            Err(error) => {
                score.void(&error);
                return None;
            }
        }
    }
    Some(seen)
}
