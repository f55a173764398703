//! SmolLM2 on a GPU.

use std::sync::Arc;

use libtest_mimic::Failed;
use lockstep::contract::Mode;
use lockstep::device::cuda::Context;
use lockstep::fixture::Fixture;
use lockstep::weights::Model;

/// Tokens drawn after each prompt.
const TOKENS: usize = 32;
/// Prompts.
const PROMPTS: usize = 3;

/// Goal: real weights give the host's bits on a GPU. Method: greedy continuations of the reference prompts on both
/// devices; runs are equal whole: tokens, logits and layer digests at every position, K and V of every layer, trajectory.
pub(crate) fn hosts_bits(context: &Arc<Context>) -> Result<(), Failed> {
    let json = std::fs::read(super::data().join("text/smollm2-greedy.json"))?;
    let json: serde_json::Value = serde_json::from_slice(&json)?;
    let mut prompts = Vec::new();
    for case in json["cases"].as_array().ok_or("no cases")? {
        let ids = super::ids_of(&case["prompt_ids"])?;
        if !prompts.contains(&ids) {
            prompts.push(ids);
        }
    }
    prompts.truncate(PROMPTS);
    let name = super::file().display().to_string();
    let model = Model::load(&super::file(), None)?;
    let unit = context.gpu().arch.matrix_unit().unit;
    let host = Fixture::host_with(&name, &model, Mode::Invariant, unit)?;
    let cuda = Fixture::cuda(&name, &model, Mode::Invariant, context)?;
    let (mut tokens, mut logits, mut layers, mut kv) = (0, 0, 0, 0);
    for prompt in &prompts {
        let run = |subject| super::continuation(subject, prompt.clone(), TOKENS, true);
        let (here, there) = (run(&host)?, run(&cuda)?);
        let output = here.first(1).ok_or("no output")?;
        let other = there.first(1).ok_or("no output on the GPU")?;
        if output.tokens != other.tokens {
            return Err(format!("tokens {:?} are {:?}", output.tokens, other.tokens).into());
        }
        let pairs = output.positions.iter().zip(&other.positions);
        if let Some((x, y)) = pairs.into_iter().find(|(x, y)| x != y) {
            return Err(format!("a computed position differs: {x:?} is {y:?}").into());
        }
        if let Some((x, _)) = output.kv.iter().zip(&other.kv).find(|(x, y)| x != y) {
            return Err(format!("K or V differs at position {}", x.position).into());
        }
        if here != there {
            return Err("the runs differ in something else".into());
        }
        tokens += output.tokens.len();
        logits += output.positions.len();
        layers += output.positions.iter().map(|p| p.sites.len()).sum::<usize>();
        kv += output.kv.iter().map(|kv| kv.layers.len()).sum::<usize>();
    }
    eprintln!(
        "smollm2 on {}: {tokens} tokens of {} prompts, {logits} logits rows, {layers} layer digests, {kv} K and V of a layer equal",
        context.gpu().name,
        prompts.len()
    );
    if prompts.len() != PROMPTS || tokens != PROMPTS * TOKENS || layers == 0 || kv == 0 {
        return Err(
            format!("only {tokens} tokens, {layers} layer digests, {kv} K and V compared").into()
        );
    }
    Ok(())
}
