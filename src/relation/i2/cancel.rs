//! I2, aborted neighbours.

use crate::record::{Finish, Sentinel};
use crate::relation::{Judgement, Relation, Spread};
use crate::schedule::ActKind;
use crate::strategy::Feature;
use crate::workload::SampleId;

use super::{can, equal_to_canonical};

/// Requests that are aborted, wherever they stand.
pub(in crate::relation) static CANCEL: Relation = Relation {
    id: "I2.cancel",
    path: "i2::cancel",
    statement: "a request's bits do not depend on others being aborted, and what an aborted one did is a part of what it would have done",
    varies: "aborts: moment, in a prefill, while swapped, with shared blocks",
    gates: &[Sentinel::Abort],
    spreads: &[
        Spread::Fired(Sentinel::AbortMidPrefill),
        Spread::Rare(Sentinel::AbortSwapped),
        Spread::Rare(Sentinel::AbortShared),
    ],
    focus: &[Feature::Abort, Feature::Cut, Feature::Swap, Feature::Samples],
    every: 1,
    applies: |c| can(c, ActKind::Abort, "the subject can't abort"),
    judge: |executions| {
        let outputs = &executions.run().outputs;
        let stays = |id: &SampleId| outputs[id].finish != Some(Finish::Aborted);
        let beside: Vec<SampleId> =
            outputs.iter().filter(|(_, o)| o.shared_steps > 0).map(|(id, _)| *id).collect();
        if !beside.iter().any(stays) {
            return Ok(Judgement::Inapplicable("nobody was left beside an aborted request"));
        }
        let all: Vec<SampleId> = outputs.keys().copied().collect();
        equal_to_canonical(executions, &all, "no request was aborted")
    },
};
