//! I4, isolation of random numbers.

use std::collections::BTreeMap;

use crate::contract::sampler::{seeded_key, unseeded_key};
use crate::record::{Draw, Finish, Output, Run, Sentinel};
use crate::strategy::Feature;
use crate::subject::{Capabilities, SubjectError};
use crate::workload::{Request, SampleId, Workload};

use super::compare::Place;
use super::{Compared, Divergence, Executions, Judgement, Observable, Relation, Spread, Standard};

/// Draws depend on the key, the position and the sample's own logits.
pub(super) static I4: Relation = Relation {
    id: "I4",
    path: "i4::rng",
    statement: "a draw is a function of its key, its position and the sample's own logits; the key is one of (seed, sample), without a seed of (run seed, uid, sample); neighbours change neither",
    varies: "neighbours, aborts, preemptions, places in the step; and the run's seed, which changes the keys of requests without one and nothing else",
    gates: &[Sentinel::DrawNotArgmaxShared],
    spreads: &[
        Spread::Fired(Sentinel::DrawMoved),
        Spread::Fired(Sentinel::PreemptRecompute),
        Spread::Fired(Sentinel::Abort),
        Spread::Parted,
    ],
    focus: &[
        Feature::Sampled,
        Feature::Samples,
        Feature::Siblings,
        Feature::Abort,
        Feature::Preempt,
    ],
    every: 2,
    applies,
    judge,
};

fn applies(capabilities: &Capabilities) -> Result<(), &'static str> {
    if capabilities.draws {
        Ok(())
    } else {
        // Its tokens are compared all the same, by I1 and I2.
        Err("the subject reports no draws")
    }
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    let case = executions.case().clone();
    let (workload, seed) = (&case.workload, case.seed);
    let found = keys_as_stated(workload, seed, executions.run());
    if let Some(divergence) = found.or_else(|| keys_apart(workload, executions.run())) {
        return Ok(Judgement::Broken(divergence));
    }
    let ids: Vec<SampleId> = executions.run().outputs.keys().copied().collect();
    let mut total = Compared::default();
    for &id in &ids {
        let (run, canonical) = executions.with_canonical(id)?;
        let Some(alone) = canonical.outputs.get(&id) else {
            let detail = "its canonical execution reported no output".to_owned();
            return Ok(Judgement::Broken(broken(Observable::Coverage, id, None, detail)));
        };
        let lone = keys_as_stated(workload, seed, canonical);
        match lone.map_or_else(|| equal(id, &run.outputs[&id], alone, "alone"), Err) {
            Ok(draws) => total.draws += draws,
            Err(divergence) => return Ok(Judgement::Broken(divergence)),
        }
    }
    if total.draws == 0 {
        // Another relation's business: a draw from other logits may differ.
        return Ok(Judgement::Inapplicable("no random draw was made from equal logits"));
    }
    let other_seed = seed.wrapping_add(1);
    let other = executions.carry_out(workload, &case.schedule, other_seed)?;
    if let Some(divergence) = keys_as_stated(workload, other_seed, &other) {
        return Ok(Judgement::Broken(divergence));
    }
    for &id in &ids {
        let (Some(request), Some(there)) = (workload.get(id.uid), other.outputs.get(&id)) else {
            continue;
        };
        if request.seed.is_some() || request.sampling.is_greedy() {
            let here = &executions.run().outputs[&id];
            if let Err(divergence) = equal(id, here, there, "under another run seed") {
                return Ok(Judgement::Broken(divergence));
            }
        }
    }
    total.parted = parted(workload, executions.run());
    Ok(Judgement::Held(total))
}

/// The key that the contract states.
fn stated(request: &Request, id: SampleId, run_seed: u64) -> Option<[u32; 2]> {
    match (request.sampling.is_greedy(), request.seed) {
        (true, _) => None,
        (false, Some(seed)) => Some(seeded_key(seed, id.sample)),
        (false, None) => Some(unseeded_key(run_seed, id.sample, id.uid)),
    }
}

/// The first draw that was not made with the stated key at the stated position, or is not that of its token.
fn keys_as_stated(workload: &Workload, run_seed: u64, run: &Run) -> Option<Box<Divergence>> {
    run.outputs.iter().find_map(|(id, output)| {
        let request = workload.get(id.uid)?;
        let (key, prompt) = (stated(request, *id, run_seed), request.prompt.own_tokens().len());
        if output.draws.len() != output.tokens.len() {
            let (draws, tokens) = (output.draws.len(), output.tokens.len());
            let detail = format!("{draws} draws were reported for {tokens} tokens");
            return Some(broken(Observable::Coverage, *id, None, detail));
        }
        let due = output.tokens.iter().zip(prompt as u32..);
        let wrong = output.draws.iter().zip(due).find(|(draw, (token, position))| {
            (draw.position, draw.token, draw.key) != (*position, **token, key)
        });
        let (draw, (token, position)) = wrong?;
        let detail = format!(
            "{} at place {} of its step, stated {}",
            drawn(draw),
            draw.place,
            drawn(&Draw { position, token: *token, key, place: 0 })
        );
        Some(broken(Observable::Draws, *id, Some(position), detail))
    })
}

fn drawn(draw: &Draw) -> String {
    let key = draw.key.map_or("no key".to_owned(), |[a, b]| format!("key {a:08x} {b:08x}"));
    format!("token {} drawn at position {} with {key}", draw.token, draw.position)
}

/// Two samples that are drawn by one key although they have not the same seed and number.
fn keys_apart(workload: &Workload, run: &Run) -> Option<Box<Divergence>> {
    let mut owners: BTreeMap<[u32; 2], (SampleId, Identity)> = BTreeMap::new();
    run.outputs.iter().find_map(|(id, output)| {
        let identity = identity(workload.get(id.uid)?, *id)?;
        let key = output.draws.first()?.key?;
        let (owner, own) = *owners.entry(key).or_insert((*id, identity));
        let detail = || format!("drawn by the key of {owner}");
        (own != identity).then(|| broken(Observable::Draws, *id, None, detail()))
    })
}

/// What tells keys apart: seed and sample, or uid and sample.
type Identity = (Option<u64>, u64, u32);

fn identity(request: &Request, id: SampleId) -> Option<Identity> {
    let uid = if request.seed.is_some() { 0 } else { id.uid };
    (!request.sampling.is_greedy()).then_some((request.seed, uid, id.sample))
}

/// Compares draws one by one, as long as they were made from equal logits, and returns how many.
fn equal(
    id: SampleId,
    got: &Output,
    expected: &Output,
    expected_is: &str,
) -> Result<u64, Box<Divergence>> {
    let logits = [by_position(got), by_position(expected)];
    let mut draws = 0;
    for (a, b) in got.draws.iter().zip(&expected.draws) {
        let from = a.position.saturating_sub(1);
        if logits[0].get(&from).is_none_or(|digest| logits[1].get(&from) != Some(digest)) {
            return Ok(draws);
        }
        if (a.position, a.token, a.key) != (b.position, b.token, b.key) {
            let detail = format!("{}, {expected_is} {}", drawn(a), drawn(b));
            return Err(broken(Observable::Draws, id, Some(a.position), detail));
        }
        // A greedy one has no random number.
        draws += u64::from(a.key.is_some());
    }
    let aborted = [got, expected].iter().any(|o| o.finish == Some(Finish::Aborted));
    if got.draws.len() != expected.draws.len() && !aborted {
        let counts = (got.draws.len(), expected.draws.len());
        let detail = format!("{} tokens were drawn, {expected_is} {}", counts.0, counts.1);
        return Err(broken(Observable::Draws, id, None, detail));
    }
    Ok(draws)
}

/// Digest of the logits of each computed position, of several the last.
fn by_position(output: &Output) -> BTreeMap<u32, u64> {
    output.positions.iter().map(|p| (p.position, p.logits)).collect()
}

/// A sample that is drawn for at random.
struct Sampled<'r> {
    request: &'r Request,
    key: [u32; 2],
    /// Digest of the logits that its first token was drawn from.
    logits: Option<u64>,
    first: u32,
}

/// Pairs of samples of one prompt that drew other first tokens from equal logits, each by a key of its own.
fn parted(workload: &Workload, run: &Run) -> u64 {
    let sampled = run.outputs.iter().filter_map(|(id, output)| {
        let request = workload.get(id.uid)?;
        let draw = output.draws.first()?;
        let from = output.positions.iter().rev().find(|p| p.position + 1 == draw.position);
        let logits = from.map(|p| p.logits);
        Some(Sampled { request, key: draw.key?, logits, first: draw.token })
    });
    let sampled: Vec<Sampled<'_>> = sampled.collect();
    let part = |a: &Sampled<'_>, b: &Sampled<'_>| {
        let alike = a.request.prompt == b.request.prompt && a.logits == b.logits;
        alike && a.key != b.key && a.first != b.first
    };
    let later = |i: usize| sampled[i + 1..].iter();
    let parted = |(i, a)| later(i).filter(|b| part(a, b)).count() as u64;
    sampled.iter().enumerate().map(parted).sum()
}

fn broken(
    observable: Observable,
    id: SampleId,
    position: Option<u32>,
    detail: String,
) -> Box<Divergence> {
    Box::new(Divergence {
        observable,
        all: [observable].into(),
        place: Place { id: Some(id), position, ..Place::default() },
        detail,
        origin: None,
        standard: Standard::Canonical,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::PositionBits;

    const ID: SampleId = SampleId { uid: 1, sample: 0 };

    /// One draw, made from logits of this digest.
    fn output(key: Option<[u32; 2]>, logits: u64) -> Output {
        let bits = PositionBits { residency: 1, position: 3, logits, sites: Vec::new() };
        let draw = Draw { position: 4, token: 7, key, place: 0 };
        Output { positions: vec![bits], draws: vec![draw], ..Output::default() }
    }

    /// Goal: only what says something of random numbers counts as compared. Method: a draw with a key, one without, one from
    /// other logits, one whose logits nobody reported.
    #[test]
    fn random_draws_from_equal_logits_count_and_no_others() {
        let compared = |a: &Output, b: &Output| equal(ID, a, b, "alone").map_err(|d| d.observable);
        let random = output(Some([1, 2]), 9);
        assert_eq!(compared(&random, &random), Ok(1));
        let greedy = output(None, 9);
        assert_eq!(compared(&greedy, &greedy), Ok(0));
        assert_eq!(compared(&random, &output(Some([1, 3]), 8)), Ok(0));
        let unseen = Output { positions: Vec::new(), ..random.clone() };
        assert_eq!(compared(&unseen, &unseen), Ok(0));
        assert_eq!(compared(&random, &output(Some([1, 3]), 9)), Err(Observable::Draws));
    }
}
