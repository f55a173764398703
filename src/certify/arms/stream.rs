//! Streamed against plain. Chunks are joined first: how a stream is cut is no difference, and counters or endings that disagree
//! about equal tokens are told beside the verdict.

use super::super::certificate::Arm;
use super::super::compare::{Parts, compare};
use super::super::plan::FEW;
use super::super::score::{Outcome, Score};
use super::super::wire::{Answer, Call};
use super::{Bench, OTHER_START, alone};

pub(crate) fn run(bench: &mut Bench<'_, '_>) -> Outcome {
    let mut score = Score::new(Arm::Stream);
    if !bench.facts.streams {
        score.refuse("the server does not stream");
        return score.conclude();
    }
    if !bench.facts.stream_is_whole {
        score.note("log-probabilities are missing in the stream, or in the plain answer");
    }
    for number in 0..bench.known.len().min(FEW as usize) {
        let plain = Call { stream: false, ..bench.known[number].call.clone() };
        let stream = Call { stream: true, ..plain.clone() };
        let (expected, got) = match (bench.session.one(&plain), bench.session.one(&stream)) {
            (Ok(plain), Ok(stream)) => (plain.answer, stream.answer),
            (Err(error), _) | (_, Err(error)) => {
                score.void(&error);
                continue;
            }
        };
        // Other counters may be what disagrees; what was cached must be alike only where it matters.
        if bench.cached_matters && expected.cached_tokens != got.cached_tokens {
            score.void_for(OTHER_START.into());
            continue;
        }
        let comparison = match bench.facts.stream_is_whole {
            true => compare(&expected, &got, Parts::Content),
            // Alternatives of a stream that was seen to lack something may be those of another place.
            false => compare(&bare(&expected), &bare(&got), Parts::Content),
        };
        let (plain, stream) = ((&plain, &expected), (&stream, &got));
        alone(bench.session, &mut score, number as u32, plain, stream, comparison);
    }
    score.conclude()
}

/// An answer without its alternatives.
fn bare(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    answer.tokens.iter_mut().for_each(|token| token.top.clear());
    answer
}
