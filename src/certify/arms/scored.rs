//! Log-probabilities of tokens that were generated, against those of the same tokens as part of a prompt. Ids are sent, never
//! text: text would be cut into tokens anew.

use super::super::certificate::Arm;
use super::super::compare::{Comparison, Parts, compare};
use super::super::plan::FEW;
use super::super::score::{Outcome, Score};
use super::super::wire::{Answer, Call, Prompt};
use super::{Bench, alone};

pub(crate) fn run(bench: &mut Bench<'_, '_>) -> Outcome {
    let mut score = Score::new(Arm::Score);
    let Some(answer_tokens) = bench.facts.echo else {
        score.refuse("the server does not score prompts");
        return score.conclude();
    };
    if !bench.facts.takes_ids {
        score.refuse("the server takes no token ids: text would be cut into tokens anew");
        return score.conclude();
    }
    if bench.facts.raw_logprobs != Some(true) {
        score.refuse("log-probabilities are not known to be the model's own: greedy ones can't be compared with a prompt's");
        return score.conclude();
    }
    for number in 0..bench.known.len().min(FEW as usize) {
        let known = &bench.known[number];
        let plain = known.call.clone();
        let Some(expected) = known.warm.last().filter(|_| known.warm_is_clean).cloned() else {
            continue;
        };
        let mut scored = match score_of(bench, answer_tokens, plain.clone(), expected) {
            Ok(scored) => scored,
            Err(why) => {
                score.void_for(why);
                continue;
            }
        };
        // A prompt is scored in a plain answer: what a stream alone has otherwise is none of scoring.
        if scored.comparison.difference.is_some() && plain.stream {
            let plain = Call { stream: false, ..plain };
            let again = bench.ask(&plain).map_err(|error| error.to_string());
            let again = again.and_then(|expected| score_of(bench, answer_tokens, plain, expected));
            scored = again.unwrap_or(scored);
        }
        let Scored { plain, call, comparison } = &scored;
        let (plain, call) = ((&plain.0, &plain.1), (&call.0, &call.1));
        alone(bench.session, &mut score, number as u32, plain, call, comparison.clone());
    }
    score.conclude()
}

/// What was generated, and the same as part of a prompt.
struct Scored {
    plain: (Call, Answer),
    call: (Call, Answer),
    comparison: Comparison,
}

/// Scores the tokens of an answer.
fn score_of(
    bench: &mut Bench<'_, '_>,
    answer_tokens: u32,
    plain: Call,
    expected: Answer,
) -> Result<Scored, String> {
    let (Prompt::Ids(ids), Some(generated)) = (&plain.prompt, expected.ids()) else {
        return Err("an answer without token ids".into());
    };
    let prompt: Vec<u32> = ids.iter().chain(&generated).copied().collect();
    let call = Call { echo: true, ..Call::greedy(Prompt::Ids(prompt), answer_tokens) };
    let got = bench.ask(&call).map_err(|error| error.to_string())?;
    let part = part(&got, ids.len(), generated.len())
        .ok_or_else(|| "fewer scored tokens than the prompt has".to_owned())?;
    let comparison = compare(&expected, &part, Parts::Tokens);
    Ok(Scored { plain: (plain, expected), call: (call, part), comparison })
}

/// The scores of the generated tokens within those of the whole prompt.
fn part(echoed: &Answer, from: usize, n: usize) -> Option<Answer> {
    let tokens = echoed.tokens.get(from..from + n)?.to_vec();
    let text = tokens.iter().map(|token| token.text.as_str()).collect();
    Some(Answer { tokens, text, ..Answer::default() })
}
