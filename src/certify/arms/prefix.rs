//! A prompt of which nothing is cached against the same prompt once it is, alone. Both sides are there already: cold answers that
//! agree, and warm ones that agree. A difference counts without proof; that nothing differs says something only where a hit was
//! counted.

use super::super::certificate::Arm;
use super::super::compare::{Parts, compare};
use super::super::score::{Outcome, Score};
use super::super::wire::Answer;
use super::{Bench, alone, is_cold, same_prompt};

pub(crate) fn run(bench: &mut Bench<'_, '_>) -> Outcome {
    let mut score = Score::new(Arm::Prefix);
    let lacks = bench.known.iter().filter_map(|known| known.cold_lacks.clone());
    lacks.for_each(|why| score.void_for(why));
    // Where answers of either side differ anyway, chance would make some pairs differ.
    if bench.warm_differs() || bench.cold_differs() {
        score.refuse("warm or cold answers differ among themselves: there is no reference");
        return score.conclude();
    }
    let counted = bench.facts.hits_counted.clone();
    let (mut hits, mut has_hit) = (0, counted.is_some());
    for (number, known) in bench.known.iter().enumerate() {
        let Some(cold) = reference(&known.cold, known.cold_is_clean, known.first.as_ref()) else {
            continue;
        };
        let Some(warm) = known.warm.last().filter(|_| known.warm_is_clean) else { continue };
        if !same_prompt(cold, warm) {
            continue;
        }
        let cached = warm.cached_tokens.unwrap_or(0);
        hits = hits.max(cached);
        has_hit |= cached > 1;
        let comparison = compare(cold, warm, Parts::All);
        // Of a server that counts, a prompt without a hit is no case; of one that does not, a difference is.
        if cached <= 1 && warm.cached_tokens.is_some() && comparison.difference.is_none() {
            continue;
        }
        let call = &known.call;
        alone(bench.session, &mut score, number as u32, (call, cold), (call, warm), comparison);
    }
    if score.differing() == 0 && !has_hit {
        let none = match bench.facts.counts_cached {
            true => "no hit was counted: nothing is cached, or not for these prompts".to_owned(),
            false => format!(
                "hits are not counted{}; the arm `first` compares first answers with later ones all the same",
                hint(bench)
            ),
        };
        let unanswered = score.unanswered();
        score.refuse(unanswered.unwrap_or(none));
    } else if hits > 0 {
        score.note(format!("hits of up to {hits} tokens, by the server's counter"));
    } else if let Some(counted) = counted {
        score.note(counted);
    }
    score.conclude()
}

/// What a cold answer alone is: two that agree, or else, where nothing keeps a prompt cold, the first one ever.
fn reference<'k>(
    cold: &'k [Answer],
    is_clean: bool,
    first: Option<&'k Answer>,
) -> Option<&'k Answer> {
    match cold {
        [] => first.filter(|first| is_cold(first) && first.cached_tokens.is_some()),
        _ => cold.first().filter(|_| is_clean),
    }
}

/// How the server at hand is made to count.
fn hint(bench: &Bench<'_, '_>) -> &'static str {
    match bench.facts.is_vllm {
        true => " (vLLM: start it with --enable-prompt-tokens-details)",
        false => "",
    }
}
