//! I3, replay: the same inputs twice give the same trajectory.

mod process;

use std::collections::BTreeSet;

use crate::record::{Run, Sentinel};
use crate::strategy::Feature;
use crate::subject::{Capabilities, SubjectError};

use super::compare::Place;
use super::{Compared, Divergence, Executions, Judgement, Observable, Relation, Spread, Standard};

pub(super) use process::PROCESS;

/// Same inputs, same trajectory at every boundary, in this process.
pub(super) static I3: Relation = Relation {
    id: "I3",
    path: "i3::replay",
    statement: "the same inputs give the same state at every step boundary",
    varies: "nothing",
    gates: &[Sentinel::SharedStep],
    spreads: &[Spread::Fired(Sentinel::PreemptRecompute), Spread::Fired(Sentinel::HitTokensSaved)],
    focus: &[Feature::Preempt, Feature::Shared, Feature::Arrive],
    every: 4,
    applies,
    judge,
};

fn applies(capabilities: &Capabilities) -> Result<(), &'static str> {
    if capabilities.trajectory { Ok(()) } else { Err("the subject reports no trajectory") }
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    if !has_shared_steps(executions) {
        return Ok(Judgement::Inapplicable("fewer than two steps held two requests"));
    }
    let again = executions.repeat()?;
    Ok(match difference(executions.run(), &again) {
        Some(divergence) => Judgement::Broken(Box::new(divergence)),
        None => Judgement::Held(all_of(executions.run())),
    })
}

/// Whether two steps held two requests: with fewer there was nothing to order.
fn has_shared_steps(executions: &Executions<'_>) -> bool {
    executions.run().steps.iter().filter(|s| s.sequences >= 2).count() >= 2
}

/// Everything that a run observed.
fn all_of(run: &Run) -> Compared {
    let outputs = || run.outputs.values();
    let with_sites = outputs().flat_map(|o| &o.positions).filter(|p| !p.sites.is_empty());
    Compared {
        positions: run.rows(),
        kv: outputs().map(|o| o.kv_due).sum(),
        sites: with_sites.count() as u64,
        scores: outputs().map(|o| o.scores.len() as u64).sum(),
        draws: outputs().map(|o| o.draws.len() as u64).sum(),
        ..Compared::default()
    }
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
        standard: Standard::Repeated,
    }
}
