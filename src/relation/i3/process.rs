//! I3, replay in a fresh process.

use crate::record::Sentinel;
use crate::relation::{Executions, Judgement, Relation, Spread};
use crate::strategy::Feature;
use crate::subject::{Capabilities, SubjectError};

use super::{all_of, has_shared_steps, trajectory};

/// Same inputs, same trajectory, in another process.
pub(in crate::relation) static PROCESS: Relation = Relation {
    id: "I3.process",
    path: "i3::process",
    statement: "the same inputs give the same trajectory in a fresh process",
    varies: "the process: addresses, random states, what the process did before",
    gates: &[Sentinel::SharedStep],
    spreads: &[Spread::FreshProcess],
    focus: &[Feature::Preempt, Feature::Shared, Feature::Arrive],
    every: 128,
    applies,
    judge,
};

fn applies(capabilities: &Capabilities) -> Result<(), &'static str> {
    match (capabilities.trajectory, capabilities.fresh_process) {
        (false, _) => Err("the subject reports no trajectory"),
        (true, false) => Err("the subject can't repeat a case in a fresh process"),
        (true, true) => Ok(()),
    }
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    if !has_shared_steps(executions) {
        return Ok(Judgement::Inapplicable("fewer than two steps held two requests"));
    }
    let hash = executions.repeat_in_fresh_process()?;
    let here = executions.run().trajectory.hash();
    if here != hash {
        let detail = format!("hash {here} here, {hash} in a fresh process");
        return Ok(Judgement::Broken(Box::new(trajectory(None, detail))));
    }
    Ok(Judgement::Held(all_of(executions.run())))
}
