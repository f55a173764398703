//! The same requests again and again, one at a time: the negative control. What differs here differs without any crowd, and
//! nothing could be said about crowds.

use super::super::certificate::Arm;
use super::super::compare::{Parts, compare};
use super::super::pattern::{Pattern, Shape};
use super::super::plan::groups;
use super::super::score::{Outcome, Score};
use super::super::wire::Answer;
use super::{Bench, References, against, alone};

/// Asks the first `prompts` prompts, `repeats` times after one pass of the identical traffic.
pub(crate) fn run(bench: &mut Bench<'_, '_>, prompts: u32, repeats: u32) -> (Outcome, References) {
    let mut score = Score::new(Arm::Repeat);
    // Each pass goes through all prompts: a repeat right after itself would see a warmer server than any other request.
    let mut answers: Vec<Vec<Answer>> = vec![Vec::new(); prompts as usize];
    let mut primed = vec![false; prompts as usize];
    for pass in 0..=repeats {
        // Each pass in an order of its own: replicas that take turns would else give each prompt to the same one.
        let order = groups(prompts, prompts, pass, bench.options.seed ^ 2).swap_remove(0);
        for number in order {
            let call = bench.call(number);
            match bench.session.one(&call) {
                Ok(exchange) => {
                    let seen = &mut answers[number as usize];
                    primed[number as usize] |= pass == 0;
                    if pass > 0 && primed[number as usize] && seen.len() > 1 {
                        score.case();
                        judge(bench, &mut score, number, &seen[1..], &exchange.answer);
                    }
                    seen.push(exchange.answer);
                }
                Err(error) => score.void(&error),
            }
        }
    }
    for seen in &answers {
        let same =
            |a: usize, b: usize| compare(&seen[a], &seen[b], Parts::All).difference.is_none();
        score.pattern(Pattern::of(seen.len(), same));
    }
    let references: References =
        answers.into_iter().map(|seen| seen.into_iter().skip(1).collect()).collect();
    let mut outcome = score.conclude();
    let shape = outcome.record.pattern.as_ref().map(|pattern| pattern.shape);
    if let Some(shape) = shape.filter(|shape| *shape != Shape::Equal) {
        outcome.record.notes.push(format!("pattern with the priming pass: {}", shape.words()));
    }
    (outcome, references)
}

fn judge(
    bench: &mut Bench<'_, '_>,
    score: &mut Score,
    number: u32,
    earlier: &[Answer],
    got: &Answer,
) {
    let call = bench.call(number);
    if let Some((expected, comparison)) = against(earlier, got) {
        alone(bench.session, score, number, (&call, expected), (&call, got), comparison);
    }
}
