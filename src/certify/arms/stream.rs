//! Streamed against plain. Chunks are joined first: how a stream is cut is no difference.

use super::super::certificate::Arm;
use super::super::score::{Outcome, Score};
use super::super::wire::Call;
use super::{Bench, OTHER_START, against, alone, same_start};

pub(crate) fn run(bench: &mut Bench<'_, '_>) -> Outcome {
    let mut score = Score::new(Arm::Stream);
    if !bench.facts.streams {
        score.refuse("the server does not stream");
        return score.conclude();
    }
    if !bench.facts.stream_is_whole {
        score.note("log-probabilities are missing in the stream, or in the plain answer");
    }
    for number in 0..bench.options.prompts {
        let plain = Call { stream: false, ..bench.call(number) };
        let stream = Call { stream: true, ..plain.clone() };
        let (expected, got) = match (bench.session.one(&plain), bench.session.one(&stream)) {
            (Ok(plain), Ok(stream)) => (plain.answer, stream.answer),
            (Err(error), _) | (_, Err(error)) => {
                score.void(&error);
                continue;
            }
        };
        if !same_start(&expected, &got) {
            score.void_for(OTHER_START.into());
            continue;
        }
        score.case();
        if let Some((expected, comparison)) = against([&expected], &got) {
            alone(
                bench.session,
                &mut score,
                number,
                (&plain, expected),
                (&stream, &got),
                comparison,
            );
        }
    }
    score.conclude()
}
