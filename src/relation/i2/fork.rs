//! I2, forks with copy-on-write.

use crate::record::{KvMoment, Sentinel};
use crate::relation::{Relation, Spread};
use crate::schedule::ActKind;
use crate::strategy::Feature;
use crate::workload::SampleId;

use super::{can_with_kv, equal_to_canonical, read_at};

/// Samples that share blocks with each other, the partial last one included.
pub(in crate::relation) static FORK: Relation = Relation {
    id: "I2.fork",
    path: "i2::fork",
    statement: "a sample's bits do not depend on which blocks it shares with another sample of its request, nor on who copied them",
    varies: "forks: moment, partial blocks, who writes first, chains of forks, when a copy lands",
    gates: &[Sentinel::Fork],
    spreads: &[
        Spread::Fired(Sentinel::ForkPartial),
        Spread::Fired(Sentinel::CowCopy),
        Spread::Fired(Sentinel::CowByParent),
        Spread::Fired(Sentinel::CopyLandedLate),
    ],
    focus: &[Feature::Samples, Feature::Land],
    every: 1,
    applies: |c| can_with_kv(c, ActKind::Fork, "the subject can't fork"),
    judge: |executions| {
        // Whom they forked from is as much in danger as they are.
        let forked = read_at(executions, KvMoment::Forked);
        let is_kin = |id: &&SampleId| forked.iter().any(|f| f.uid == id.uid);
        let kin: Vec<SampleId> = executions.run().outputs.keys().filter(is_kin).copied().collect();
        equal_to_canonical(executions, &kin, "no sample was forked")
    },
};
