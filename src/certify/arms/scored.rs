//! Log-probabilities of tokens that were generated, against those of the same tokens as part of a prompt. Ids are sent, never
//! text: text would be cut into tokens anew.

use super::super::certificate::Arm;
use super::super::compare::{Parts, compare};
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
        let (Prompt::Ids(ids), Some(generated)) = (&plain.prompt, expected.ids()) else {
            score.void_for("an answer without token ids".into());
            continue;
        };
        let prompt: Vec<u32> = ids.iter().chain(&generated).copied().collect();
        let call = Call::greedy(Prompt::Ids(prompt), answer_tokens);
        let call = Call { echo: true, ..call };
        let got = match bench.session.one(&call) {
            Ok(exchange) => exchange.answer,
            Err(error) => {
                score.void(&error);
                continue;
            }
        };
        let Some(part) = part(&got, ids.len(), generated.len()) else {
            score.void_for("fewer scored tokens than the prompt has".into());
            continue;
        };
        let mut comparison = compare(&expected, &part, Parts::Tokens);
        // A prompt is scored in a plain answer: what a stream alone has otherwise is none of scoring.
        let (mut plain, mut expected) = (plain, expected);
        if comparison.difference.is_some() && plain.stream {
            plain.stream = false;
            if let Ok(exchange) = bench.session.one(&plain) {
                expected = exchange.answer;
                comparison = compare(&expected, &part, Parts::Tokens);
            }
        }
        let (plain, scored) = ((&plain, &expected), (&call, &part));
        alone(bench.session, &mut score, number as u32, plain, scored, comparison);
    }
    score.conclude()
}

/// The scores of the generated tokens within those of the whole prompt.
fn part(echoed: &Answer, from: usize, n: usize) -> Option<Answer> {
    let tokens = echoed.tokens.get(from..from + n)?.to_vec();
    let text = tokens.iter().map(|token| token.text.as_str()).collect();
    Some(Answer { tokens, text, ..Answer::default() })
}
