//! The next token of a sequence, right or disturbed, and the scores of a prompt.

use super::disturbances::How;
use super::engine::Sequence;
use super::faults::Faults;
use super::kinds::{Echo, Logprobs, Parameters, Seeds};
use super::model::{self, Context};
use super::step::Step;

const ALTERNATIVES: usize = 20;

/// A token of an answer, or of a prompt that is scored.
#[derive(Clone, Debug)]
pub(crate) struct Scored {
    pub(crate) token: u32,
    /// None for the first token of a prompt.
    pub(crate) logprob: Option<f32>,
    /// The best tokens, in falling order.
    pub(crate) best: Vec<(u32, f32)>,
}

/// Scores of a prompt's tokens.
pub(crate) fn score(prompt: &[u32], faults: &Faults) -> Vec<Scored> {
    let mut context = Context::new();
    let mut scores = Vec::new();
    for (at, &token) in prompt.iter().enumerate() {
        let mut logits = model::logits(context);
        if faults.echo == Echo::Drifts {
            model::drift(&mut logits, context, 7, 1e-3);
        }
        let logprobs = model::logprobs(&logits, 1.0);
        scores.push(if at == 0 {
            Scored { token, logprob: None, best: Vec::new() }
        } else {
            scored(token, &logprobs)
        });
        context.push(token);
    }
    scores
}

/// The token that the context goes on with, and what the client is shown.
pub(crate) fn next_token(
    faults: &Faults,
    sequence: &mut Sequence,
    step: &Step,
    place: usize,
) -> (u32, Scored) {
    let mut context = sequence.context;
    let mut drifts = Vec::new();
    let (mut twin, mut blind) = (false, false);
    for disturbance in &faults.disturbances {
        let lot = model::unit(model::mix(sequence.number ^ (faults.life << 32)));
        let met = step.meets(disturbance.when, sequence, place, faults.life);
        if lot >= disturbance.rate || !met {
            continue;
        }
        match disturbance.how {
            How::Drift(size) => drifts.push((step.kind(disturbance.when, sequence), size)),
            How::Foreign if sequence.produced >= 2 => context = context.foreign(),
            How::Foreign => {}
            How::Twin => twin = true,
            How::Shorter => sequence.shorter = true,
            How::FinishReason => sequence.odd_finish = true,
            How::Blind => blind = true,
            How::Abort => sequence.cut = Some(Some("abort")),
            How::NoReason => sequence.cut = Some(None),
            How::EmptyReason => sequence.cut = Some(Some("")),
        }
    }
    let params = &sequence.params;
    let mut logits = model::logits(context);
    for (kind, size) in drifts {
        model::drift(&mut logits, context, kind, size);
    }
    if sequence.produced < params.answer_tokens_min {
        logits[model::END as usize] = -30.0;
    }
    let mut temperature = params.temperature;
    if temperature == 0.0 && faults.parameters == Parameters::ZeroIsUnset {
        temperature = 1.0;
    }
    let seed = match (faults.seeds, params.seed) {
        (Seeds::Honoured, Some(seed)) => model::mix(seed) ^ sequence.sample as u64,
        (Seeds::OfProcess, _) => faults.life,
        _ => model::mix(sequence.number) ^ faults.life ^ sequence.sample as u64,
    };
    let at = sequence.prompt_tokens + sequence.produced;
    let chosen = model::choose(&logits, temperature, seed, at);
    let divisor = match faults.logprobs {
        Logprobs::Processed if temperature > 0.0 => temperature,
        Logprobs::Mixed if sequence.number % 2 == 1 => 1.5,
        _ => 1.0,
    };
    let mut shown = scored(chosen, &model::logprobs(&logits, divisor));
    if let Some(other) = model::twin(chosen).filter(|_| twin) {
        shown.token = other;
        for entry in &mut shown.best {
            if entry.0 == chosen {
                entry.0 = other;
            }
        }
    }
    if blind {
        shown.logprob = Some(f32::NAN);
    }
    (chosen, shown)
}

fn scored(token: u32, logprobs: &[f32]) -> Scored {
    let mut order: Vec<u32> = (0..model::VOCABULARY).collect();
    let by_value =
        |&a: &u32, &b: &u32| logprobs[b as usize].total_cmp(&logprobs[a as usize]).then(a.cmp(&b));
    order.select_nth_unstable_by(ALTERNATIVES, by_value);
    order.truncate(ALTERNATIVES);
    order.sort_by(by_value);
    let best = order.into_iter().map(|token| (token, logprobs[token as usize])).collect();
    Scored { token, logprob: Some(logprobs[token as usize]), best }
}
