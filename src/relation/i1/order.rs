//! I1, order.

use crate::case::Case;
use crate::record::{Finish, Sentinel};
use crate::relation::{Compared, Executions, Judgement, Relation, Spread, Standard, compare};
use crate::strategy::Feature;
use crate::subject::SubjectError;
use crate::workload::{SampleId, Workload};

/// The same requests, submitted in the reverse order.
pub(in crate::relation) static ORDER: Relation = Relation {
    id: "I1.order",
    path: "i1::order",
    statement: "a request's bits do not depend on the order in which requests were submitted, nor on the rows that follow from it",
    varies: "the order of submission, and with it priority, rows, victims and who writes a shared prefix",
    gates: &[Sentinel::SharedStep],
    spreads: &[
        Spread::Fired(Sentinel::RowNotFirst),
        Spread::Fired(Sentinel::RowMoved),
        Spread::Fired(Sentinel::BlockShared),
    ],
    focus: &[Feature::Rank, Feature::Shared],
    every: 4,
    applies: super::applies,
    judge,
};

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    let mut requests = executions.case().workload.requests.clone();
    if requests.len() < 2 {
        return Ok(Judgement::Inapplicable("there is one request"));
    }
    requests.reverse();
    let case = Case { workload: Workload { requests }, ..executions.case().clone() };
    let reversed = executions.carry_out(&case.workload, &case.schedule, case.seed)?;
    let standard = Standard::other("in the reverse order", case);
    let run = executions.run();
    if reversed.trajectory == run.trajectory && executions.capabilities().trajectory {
        return Ok(Judgement::Inapplicable("the order changed nothing"));
    }
    let shared: Vec<SampleId> =
        run.outputs.iter().filter(|(_, o)| o.shared_steps > 0).map(|(id, _)| *id).collect();
    let mut total = Compared::default();
    for id in shared {
        let (got, Some(other)) = (&run.outputs[&id], reversed.outputs.get(&id)) else {
            let detail = format!("the engine reported no output for {id} in the reverse order");
            return Ok(Judgement::Broken(Box::new(compare::crash(detail))));
        };
        let finishes = [got.finish, other.finish];
        if finishes.contains(&Some(Finish::Undecided)) {
            return Ok(Judgement::Inapplicable("a logit was not finite"));
        }
        let ended = !finishes.contains(&Some(Finish::Aborted));
        match compare::twins(id, got, other, ended, &standard) {
            Ok(compared) => total.add(&compared),
            Err(divergence) => return Ok(Judgement::Broken(divergence)),
        }
    }
    Ok(match total.positions {
        0 => Judgement::Inapplicable("nobody came to an end in both orders"),
        _ => Judgement::Held(total),
    })
}
