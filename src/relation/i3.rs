//! I3, replay: the same inputs twice give the same trajectory.

use std::collections::BTreeSet;

use crate::record::{Run, Sentinel};
use crate::strategy::Feature;
use crate::subject::{Capabilities, SubjectError};

use super::compare::Place;
use super::{Compared, Divergence, Executions, Judgement, Observable, Relation, Spread};

/// Same inputs, same trajectory at every boundary, in this process and in a fresh one.
pub(super) static I3: Relation = Relation {
    id: "I3",
    path: "i3::replay",
    statement: "the same inputs give the same state at every step boundary, also in a fresh process",
    varies: "nothing",
    gates: &[Sentinel::SharedStep],
    spreads: &[
        Spread::Fired(Sentinel::PreemptRecompute),
        Spread::Fired(Sentinel::HitTokensSaved),
        Spread::FreshProcess,
    ],
    focus: &[Feature::Preempt, Feature::Shared, Feature::Arrive],
    applies,
    judge,
};

fn applies(capabilities: &Capabilities) -> Result<(), &'static str> {
    if capabilities.trajectory { Ok(()) } else { Err("the subject reports no trajectory") }
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    let shared = executions.run().steps.iter().filter(|s| s.sequences >= 2).count();
    if shared < 2 {
        return Ok(Judgement::Inapplicable("fewer than two steps held two requests"));
    }
    let again = executions.repeat()?;
    if let Some(divergence) = difference(executions.run(), &again) {
        return Ok(Judgement::Broken(Box::new(divergence)));
    }
    if let Some(hash) = executions.repeat_in_fresh_process()? {
        let here = executions.run().trajectory.hash();
        if here != hash {
            let detail = format!("hash {here} here, {hash} in a fresh process");
            return Ok(Judgement::Broken(Box::new(trajectory(None, detail))));
        }
    }
    let run = executions.run();
    Ok(Judgement::Held(Compared {
        positions: run.rows(),
        kv: run.outputs.values().map(|o| o.kv_due).sum(),
        sites: run
            .outputs
            .values()
            .flat_map(|o| &o.positions)
            .filter(|p| !p.sites.is_empty())
            .count() as u64,
        scores: run.outputs.values().map(|o| o.scores.len() as u64).sum(),
        ..Compared::default()
    }))
}

/// The first difference of two runs that should be one.
pub(super) fn difference(first: &Run, second: &Run) -> Option<Divergence> {
    if first.trajectory.boundaries.is_empty() {
        return Some(trajectory(None, "the run recorded no boundary".into()));
    }
    if let Some(at) = first.trajectory.first_difference(&second.trajectory) {
        let detail = format!("the same inputs led to another state at boundary {at}");
        return Some(trajectory(Some(at as u32), detail));
    }
    // Equal hashes over unequal outputs would mean that the hash is blind to something.
    if first.outputs != second.outputs {
        let detail =
            "equal trajectories, but other outputs: the trajectory is blind to a difference";
        return Some(trajectory(None, detail.into()));
    }
    None
}

fn trajectory(boundary: Option<u32>, detail: String) -> Divergence {
    Divergence {
        observable: Observable::Trajectory,
        all: BTreeSet::from([Observable::Trajectory]),
        place: Place { position: boundary, ..Place::default() },
        detail,
        origin: None,
    }
}
