//! I1, batch invariance: against the request alone; the others are in files of their own.

mod order;
mod siblings;

use crate::record::Sentinel;
use crate::strategy::Feature;
use crate::subject::{Capabilities, SubjectError};
use crate::workload::SampleId;

use super::{Executions, Judgement, Relation, Spread, i2};

pub(super) use order::ORDER;
pub(super) use siblings::SIBLINGS;

/// Cohabitants, their number, order, rows and lengths change no bit.
pub(super) static I1: Relation = Relation {
    id: "I1",
    path: "i1::cohabitants",
    statement: "a request's bits equal those of the request alone, whoever shares its steps",
    varies: "cohabitants, their number (1 to 33), order, row, lengths, identical siblings",
    gates: &[Sentinel::SharedStep],
    spreads: &[
        Spread::Fired(Sentinel::RowNotFirst),
        Spread::Fired(Sentinel::MultiSplitRow),
        Spread::Fired(Sentinel::GemmFold),
        Spread::Fired(Sentinel::GemmSkinnyWalk),
        Spread::Fired(Sentinel::GemmSkinnyParallel),
        Spread::Fired(Sentinel::GemmTiledWalk),
        Spread::Fired(Sentinel::GemmTiledParallel),
        Spread::Fired(Sentinel::AttentionWalk),
        Spread::Fired(Sentinel::AttentionParallel),
        Spread::Fired(Sentinel::NormFused),
        Spread::Fired(Sentinel::NormPlain),
        Spread::RowEdges,
    ],
    focus: &[Feature::Siblings, Feature::Rank],
    every: 1,
    applies,
    judge,
};

fn applies(capabilities: &Capabilities) -> Result<(), &'static str> {
    if capabilities.logits { Ok(()) } else { Err("the subject reports no logits") }
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    let outputs = &executions.run().outputs;
    let shared: Vec<SampleId> =
        outputs.iter().filter(|(_, o)| o.shared_steps > 0).map(|(id, _)| *id).collect();
    i2::equal_to_canonical(executions, &shared, "no request shared a step")
}
