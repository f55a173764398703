//! Requests one at a time: the first answer ever to each prompt, the same again and again, and again later.
//!
//! Repeats after the first answer are the negative control: what differs there differs without any crowd, and such answers are no
//! reference for crowds. A first answer that differs from later ones, which agree, is a finding of its own: a cache, a warm-up, or
//! another replica. Where later answers to any prompt differ, chance would make some first ones differ too: they show nothing.

use super::super::certificate::Arm;
use super::super::compare::{Parts, compare};
use super::super::gauge::Hits;
use super::super::pattern::{Pattern, Shape};
use super::super::plan::groups;
use super::super::score::{Outcome, Score};
use super::super::wire::{Answer, Call};
use super::{
    Bench, Known, OTHER_START, against, alone, is_cold, is_equal, no_reference, same_prompt,
    same_start,
};

/// Why a first answer shows nothing that is no first one.
const SENT_BEFORE: &str = "its prompt was in the server's cache already: an earlier run had the same nonce, or a cache outlived a restart";
/// Share of what repeats find in the cache from which on the first requests found their prompts there.
const FOUND_MIN: f64 = 0.9;

/// Prompts whose first answers differ that are asked again, and how often: several replicas may have agreed by chance.
const CONFIRMED: (usize, u32) = (4, 3);

/// Asks every judged prompt for the first time, and `repeats` times after that. Each pass goes through all prompts: a repeat right
/// after itself would see a warmer server than any other request.
pub(crate) fn begin(bench: &mut Bench<'_, '_>) -> [Outcome; 2] {
    let options = bench.options;
    let (mut first, mut repeat) = (Score::new(Arm::First), Score::new(Arm::Repeat));
    bench.known = (0..options.prompts)
        .map(|number| {
            let prompt = bench.prompts.judged(bench.session, number);
            let call = bench.facts.call(&prompt, options.answer_tokens);
            Known {
                call,
                first: None,
                warm: Vec::new(),
                warm_is_clean: false,
                warm_differs: false,
                cold: Vec::new(),
                cold_is_clean: false,
                cold_differs: false,
                cold_lacks: None,
                took: Default::default(),
            }
        })
        .collect();
    // Where answers do not say what came from the cache, a counter of the server's may.
    let is_needed = options.asks(Arm::First) && !bench.facts.counts_cached;
    let hits = is_needed.then(|| Hits::find(bench.session.client.clone())).flatten();
    let now = || hits.as_ref().and_then(Hits::now);
    let mut counts = vec![now()];
    for pass in 0..=options.repeats {
        for number in order(options.prompts, pass, options.seed) {
            let call = bench.known[number as usize].call.clone();
            match bench.session.one(&call) {
                Ok(exchange) => {
                    let known = &mut bench.known[number as usize];
                    known.took = exchange.duration();
                    match pass {
                        0 => known.first = Some(exchange.answer),
                        _ => known.warm.push(exchange.answer),
                    }
                }
                Err(error) if pass == 0 => first.void(&error),
                Err(error) => repeat.void(&error),
            }
        }
        if pass < 2 {
            counts.push(now());
        }
    }
    if let [Some(begin), Some(first), Some(again)] = counts[..] {
        let (first, again) = (first.saturating_sub(begin), again.saturating_sub(first));
        bench.first_hits = again > 0 && first as f64 >= FOUND_MIN * again as f64;
    }
    if options.asks(Arm::First) {
        confirm_first(bench);
    }
    for number in 0..bench.known.len() {
        judge_repeats(bench, &mut repeat, number);
    }
    for number in 0..bench.known.len() {
        judge_first(bench, &mut first, number);
    }
    let (mut first, repeat) = (first.conclude(), repeat.conclude());
    let shape = first.record.pattern.as_ref().map(|pattern| pattern.shape);
    if let Some(shape) = shape.filter(|shape| *shape != Shape::Equal) {
        first.record.notes.push(format!("answers alone, in their order: {}", shape.words()));
    }
    [first, repeat]
}

/// The order of a pass, in which each prompt comes an odd number of requests after the pass before: replicas that take turns would
/// else give each prompt to the same one.
fn order(prompts: u32, pass: u32, seed: u64) -> Vec<u32> {
    let mut order = groups(prompts, prompts, 0, seed ^ 2).swap_remove(0);
    if prompts.is_multiple_of(2) {
        order.rotate_right((pass % prompts) as usize);
    }
    order
}

/// More answers to prompts whose first answer differs from later ones, which agree.
fn confirm_first(bench: &mut Bench<'_, '_>) {
    let (prompts, times) = CONFIRMED;
    let differs = |known: &Known| {
        let later =
            known.warm.first().filter(|later| known.warm.iter().all(|w| is_equal(later, w)));
        later.zip(known.first.as_ref()).is_some_and(|(later, first)| !is_equal(first, later))
    };
    let all = (0..bench.known.len()).filter(|n| differs(&bench.known[*n]));
    for number in all.take(prompts).collect::<Vec<usize>>() {
        for _ in 0..times {
            let call = bench.known[number].call.clone();
            // Of what is not answered nothing is concluded.
            if let Ok(answer) = bench.ask(&call) {
                bench.known[number].warm.push(answer);
            }
        }
    }
}

/// All pairs of the answers after the first one.
fn judge_repeats(bench: &mut Bench<'_, '_>, score: &mut Score, number: usize) {
    let known = &bench.known[number];
    let mut differs = false;
    for (i, got) in known.warm.iter().enumerate().skip(1) {
        if let Some((expected, comparison)) = against(&known.warm[..i], got) {
            differs |= comparison.difference.is_some();
            let call = &known.call;
            alone(bench.session, score, number as u32, (call, expected), (call, got), comparison);
        }
    }
    let known = &mut bench.known[number];
    known.warm_differs = differs;
    known.warm_is_clean = known.warm.len() >= 2 && !differs;
}

fn judge_first(bench: &Bench<'_, '_>, score: &mut Score, number: usize) {
    let known = &bench.known[number];
    let Some(first) = &known.first else { return };
    let all: Vec<&Answer> = [first].into_iter().chain(&known.warm).collect();
    score.pattern(Pattern::of(all.len(), |a, b| is_equal(all[a], all[b])));
    if bench.warm_differs() {
        score.void_for("later answers differ among themselves".into());
        return;
    }
    let Some((later, _)) = against(&known.warm, first) else { return };
    if !same_prompt(first, later) {
        score.void_for(OTHER_START.into());
        return;
    }
    let comparison = compare(first, later, Parts::All);
    // Nothing more of it came from a cache later on: it had been sent before, and its first answer was another one.
    let is_known = !is_cold(first) && first.cached_tokens >= later.cached_tokens;
    if comparison.difference.is_none() && (is_known || bench.first_hits) {
        score.void_for(SENT_BEFORE.into());
        return;
    }
    let call = &known.call;
    alone(bench.session, score, number as u32, (call, first), (call, later), comparison);
}

/// Asks the first `prompts` prompts once more, and compares with what they were answered before. Where an answer changed, later
/// ones are compared with the new one.
pub(crate) fn again(bench: &mut Bench<'_, '_>, score: &mut Score, prompts: u32) {
    for number in 0..prompts.min(bench.known.len() as u32) {
        let call = bench.known[number as usize].call.clone();
        match bench.ask(&call) {
            Ok(got) => compare_again(bench, score, number, &call, got),
            Err(error) => score.void(&error),
        }
    }
}

/// Compares an answer alone with earlier ones, from which it must not differ.
pub(crate) fn compare_again(
    bench: &mut Bench<'_, '_>,
    score: &mut Score,
    number: u32,
    call: &Call,
    got: Answer,
) {
    let known = &bench.known[number as usize];
    if !known.warm_is_clean {
        score.void_for(no_reference(known.warm_differs));
        return;
    }
    let same = || known.warm.iter().filter(|reference| same_start(reference, &got));
    let prompts = || known.warm.iter().filter(|reference| same_prompt(reference, &got));
    // Where the cache served another extent than ever before, the answer must be equal all the same.
    let found = against(same(), &got).or_else(|| against(prompts(), &got));
    let Some((expected, comparison)) = found else {
        score.void_for(OTHER_START.into());
        return;
    };
    let differs = comparison.difference.is_some();
    alone(bench.session, score, number, (call, expected), (call, &got), comparison);
    if differs {
        bench.known[number as usize].warm = vec![got];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_in_turn_get_each_prompt_in_passes_one_after_the_other() {
        for prompts in 2..12 {
            let at = |number: u32, pass: u32| {
                let order = order(prompts, pass, 7);
                let place = order.iter().position(|other| *other == number).expect("all prompts");
                pass * prompts + place as u32
            };
            for (number, pass) in (0..prompts).flat_map(|n| (0..5).map(move |pass| (n, pass))) {
                let apart = at(number, pass + 1) - at(number, pass);
                assert_eq!(apart % 2, 1, "{number} of {prompts} in pass {pass}");
            }
        }
    }
}
