//! I2, schedule invariance: chunk partition, preemption by recompute, prefix hits; the others are in files of their own.

mod bucket;
mod cancel;
mod evict;
mod fork;
mod land;
mod namespace;
mod path;
mod place;
mod poison;
mod restore;
mod swap;

use crate::record::{Finish, KvBits, KvMoment, Output, Sentinel};
use crate::schedule::ActKind;
use crate::strategy::Feature;
use crate::subject::{Capabilities, SubjectError};
use crate::workload::SampleId;

use super::compare::Known;
use super::{Compared, Executions, Judgement, Relation, Spread, Standard, compare};

pub(super) use bucket::BUCKET;
pub(super) use cancel::CANCEL;
pub(super) use evict::EVICT;
pub(super) use fork::FORK;
pub(super) use land::LAND;
pub(super) use namespace::NAMESPACE;
pub(super) use path::PATH;
pub(super) use place::PLACE;
pub(super) use poison::POISON;
pub(super) use restore::RESTORE;
pub(super) use swap::SWAP;

/// Any partition of a prefill into chunks.
pub(super) static CHUNK: Relation = Relation {
    id: "I2.chunk",
    path: "i2::chunk",
    statement: "a request's bits do not depend on where its prefill was cut",
    varies: "the partition of prefills and re-prefills into chunks",
    gates: &[Sentinel::Cut],
    spreads: &[
        Spread::Fired(Sentinel::CutMidBlock),
        Spread::Fired(Sentinel::CutMidTile),
        Spread::Fired(Sentinel::CutMidSplit),
        Spread::Fired(Sentinel::TileBeforeChunk),
    ],
    focus: &[Feature::Cut],
    every: 1,
    applies: |c| can(c, ActKind::Cut, "the subject can't cut a prefill"),
    judge: |executions| {
        let cut = fired(executions, ActKind::Cut);
        equal_to_canonical(executions, &cut, "no prefill was cut")
    },
};

/// Preemption by recompute, repeatedly and in the middle of a chunked prefill.
pub(super) static PREEMPT: Relation = Relation {
    id: "I2.preempt",
    path: "i2::preempt",
    statement: "a request's bits do not depend on losing its residency and computing its tokens again",
    varies: "preemption by recompute: moment, repetition, absence, victims of pool pressure",
    gates: &[Sentinel::PreemptRecompute],
    spreads: &[
        Spread::Fired(Sentinel::Resume),
        Spread::Fired(Sentinel::PreemptMidPrefill),
        Spread::Fired(Sentinel::PreemptAgain),
        Spread::Fired(Sentinel::PreemptForRoom),
        Spread::Fired(Sentinel::ScoredInPrefill),
    ],
    focus: &[Feature::Preempt, Feature::Cut],
    every: 1,
    applies: |c| can(c, ActKind::Preempt, "the subject can't preempt"),
    judge: |executions| {
        let outputs = &executions.run().outputs;
        let again: Vec<SampleId> =
            outputs.iter().filter(|(_, o)| computes_again(o)).map(|(id, _)| *id).collect();
        equal_to_canonical(executions, &again, "no request was preempted and resumed")
    },
};

/// Prefix hits: full, partial, refused.
pub(super) static PREFIX: Relation = Relation {
    id: "I2.prefix",
    path: "i2::prefix",
    statement: "a request's bits do not depend on what the prefix cache served",
    varies: "prefix hits: full, partial, refused, on shared and on own blocks",
    gates: &[Sentinel::HitTokensSaved, Sentinel::HitRefused],
    spreads: &[
        Spread::Fired(Sentinel::HitTokensSaved),
        Spread::Fired(Sentinel::HitFull),
        Spread::Fired(Sentinel::HitPartial),
        Spread::Fired(Sentinel::HitRefused),
        Spread::Fired(Sentinel::BlockShared),
    ],
    focus: &[Feature::Shared, Feature::Arrive, Feature::Hit],
    every: 1,
    applies: |c| can(c, ActKind::Hit, "the subject has no prefix cache to deviate from"),
    judge: |executions| {
        let mut served = fired(executions, ActKind::Hit);
        served.extend(read_at(executions, KvMoment::Attached));
        served.sort_unstable();
        served.dedup();
        equal_to_canonical(executions, &served, "no prefix was served or refused")
    },
};

/// Whether it was resident again without its K and V having come back from host memory.
fn computes_again(output: &Output) -> bool {
    let swapped = |residency| {
        let back = |kv: &KvBits| kv.residency == residency && kv.moment == KvMoment::SwappedIn;
        output.kv.iter().any(back)
    };
    output.positions.iter().any(|p| p.residency > 1 && !swapped(p.residency))
}

fn can(
    capabilities: &Capabilities,
    act: ActKind,
    missing: &'static str,
) -> Result<(), &'static str> {
    if !capabilities.logits {
        return Err("the subject reports no logits");
    }
    if capabilities.acts.contains(&act) { Ok(()) } else { Err(missing) }
}

/// [`can`], of a subject that reports K and V too.
fn can_with_kv(
    capabilities: &Capabilities,
    act: ActKind,
    missing: &'static str,
) -> Result<(), &'static str> {
    if !capabilities.kv {
        return Err("the subject reports no K and V");
    }
    can(capabilities, act, missing)
}

/// Samples whose K and V were read back at this moment.
fn read_at(executions: &Executions<'_>, moment: KvMoment) -> Vec<SampleId> {
    let outputs = executions.run().outputs.iter();
    let read = outputs.filter(|(_, o)| o.kv.iter().any(|kv| kv.moment == moment));
    read.map(|(id, _)| *id).collect()
}

/// Samples for which an intent of this kind changed a decision.
fn fired(executions: &Executions<'_>, kind: ActKind) -> Vec<SampleId> {
    let mut ids: Vec<SampleId> = executions
        .run()
        .intents
        .iter()
        .filter(|o| o.inert.is_none() && o.intent.act.kind() == kind)
        .map(|o| o.intent.id())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The outputs of these samples equal their canonical ones, bit for bit.
pub(super) fn equal_to_canonical(
    executions: &mut Executions<'_>,
    ids: &[SampleId],
    inapplicable: &'static str,
) -> Result<Judgement, SubjectError> {
    if ids.is_empty() {
        return Ok(Judgement::Inapplicable(inapplicable));
    }
    let &Capabilities { kv, sites, logprobs, .. } = executions.capabilities();
    let mut total = Compared::default();
    let mut undecided = false;
    let aborted = fired(executions, ActKind::Abort);
    for &id in ids {
        let request = executions.case().workload.get(id.uid).filter(|_| logprobs).cloned();
        let (run, canonical) = executions.with_canonical(id)?;
        let (Some(got), Some(expected)) = (run.outputs.get(&id), canonical.outputs.get(&id)) else {
            let detail = format!("the engine reported no output for {id}");
            return Ok(Judgement::Broken(Box::new(compare::crash(detail))));
        };
        let due = request.map_or(0, |r| r.scores_due(expected.tokens.len()));
        let known = Known { kv, sites, scores: due, aborted: aborted.contains(&id) };
        match compare::outputs(id, got, expected, known, &Standard::Canonical) {
            // Equal, but a logit was not finite: NaN equals NaN in a digest, and nothing is shown by that.
            Ok(_) if expected.finish == Some(Finish::Undecided) => undecided = true,
            Ok(compared) => {
                total.add(&compared);
            }
            Err(divergence) => return Ok(Judgement::Broken(divergence)),
        }
    }
    if undecided {
        return Ok(Judgement::Inapplicable("a logit was not finite"));
    }
    Ok(Judgement::Held(total))
}
