//! What ends an output and what is returned with it: stop tokens, stop strings, log-probabilities.

use super::Space;
use super::draw::Draw;
use super::swarm::{Feature, Swarm};
use super::workload::Planned;

/// Draws both for a request.
pub(super) fn draw(draw: &mut Draw<'_>, space: &Space, swarm: &Swarm, plan: &mut Planned) {
    let request = &mut plan.request;
    if draw.percent(swarm.level(Feature::Stops) / 2) {
        // Enough of them that an output of a few tokens now and then meets one.
        let count = draw.between(1, 24);
        let vocab = space.edges.vocab as usize;
        request.stop_token_ids = (0..count).map(|_| draw.below(vocab) as u32).collect();
        request.stop_token_ids.sort_unstable();
        request.stop_token_ids.dedup();
    }
    // Real tokenizers have tokens without bytes of their own.
    if space.prompts.is_none() && draw.percent(swarm.level(Feature::Stops) / 2) {
        let count = draw.between(1, 16);
        request.stop = (0..count).map(|_| string(draw)).collect();
    }
    if draw.percent(swarm.level(Feature::Scored)) {
        request.logprobs = Some(draw.pick(&[0, 1, 5]));
    }
    // Nothing of such a prompt is served by a cache, so samples and hits would have nothing to do.
    let alone = request.samples == 1 && plan.shared == 0 && plan.follows.is_none();
    if alone && draw.percent(swarm.level(Feature::Scored)) {
        request.prompt_logprobs = Some(draw.pick(&[0, 2]));
    }
}

/// One character, or two.
fn string(draw: &mut Draw<'_>) -> String {
    let count = 1 + draw.weighted(&[75, 25]);
    (0..count).map(|_| char::from(draw.below(128) as u8)).collect()
}
