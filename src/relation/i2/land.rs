//! I2, late landing.

use crate::record::Sentinel;
use crate::relation::{Relation, Spread};
use crate::schedule::ActKind;
use crate::strategy::Feature;
use crate::workload::SampleId;

use super::{can, equal_to_canonical};

/// K and V that are written, copied or swapped boundaries after their launch, whatever happened in between.
pub(in crate::relation) static LAND: Relation = Relation {
    id: "I2.land",
    path: "i2::land",
    statement: "nobody's bits depend on when a launched chunk, copy or swap lands, nor on whether its request has left by then",
    varies: "boundaries between launch and landing of chunks, copies and swaps; preemptions, swaps and aborts in between",
    gates: &[Sentinel::LandedLate],
    spreads: &[
        Spread::Fired(Sentinel::LandedLate),
        Spread::Fired(Sentinel::LandedAfterLeaving),
        Spread::Rare(Sentinel::CopyLandedAfterLeaving),
    ],
    focus: &[Feature::Land, Feature::Preempt, Feature::Swap],
    every: 1,
    applies: |c| can(c, ActKind::Land, "the subject can't let a chunk land late"),
    judge: |executions| {
        // What lands late may land in blocks of anybody.
        let all: Vec<SampleId> = executions.run().outputs.keys().copied().collect();
        equal_to_canonical(executions, &all, "there is no request")
    },
};
