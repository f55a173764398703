//! The same requests at the start, in the middle and at the end of a run: a server that drifts as it lives shows here.

use super::super::score::Score;
use super::{Bench, OTHER_START, References, against, alone, same_start};

/// Asks once more, and compares with the start.
pub(crate) fn probe(
    bench: &mut Bench<'_, '_>,
    score: &mut Score,
    references: &References,
    prompts: u32,
) {
    for number in 0..prompts {
        let call = bench.call(number);
        let got = match bench.session.one(&call) {
            Ok(exchange) => exchange.answer,
            Err(error) => {
                score.void(&error);
                continue;
            }
        };
        let Some(seen) = references.get(number as usize) else { continue };
        match against(seen.iter().filter(|reference| same_start(reference, &got)), &got) {
            None => score.void_for(OTHER_START.into()),
            Some((expected, comparison)) => {
                score.case();
                alone(bench.session, score, number, (&call, expected), (&call, &got), comparison);
            }
        }
    }
}
