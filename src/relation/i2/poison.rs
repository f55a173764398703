//! I2, poison.

use crate::case::Case;
use crate::record::Sentinel;
use crate::relation::{Executions, Judgement, Relation, Spread, Standard, i3};
use crate::strategy::Feature;
use crate::subject::{Capabilities, SubjectError};
use crate::workload::SampleId;
use crate::world::World;

use super::equal_to_canonical;

/// Memory that nobody may read is full of NaN, or holds what happens to be there.
pub(in crate::relation) static POISON: Relation = Relation {
    id: "I2.poison",
    path: "i2::poison",
    statement: "no bit and no decision depends on what freed blocks, block tails, scratch and padding rows hold",
    varies: "the contents of memory that nobody may read",
    gates: &[Sentinel::Poisoned],
    spreads: &[Spread::Fired(Sentinel::Poisoned), Spread::Fired(Sentinel::PaddedStep)],
    focus: &[Feature::Poison, Feature::Preempt, Feature::Bucket],
    every: 1,
    applies,
    judge,
};

fn applies(capabilities: &Capabilities) -> Result<(), &'static str> {
    if !capabilities.logits || !capabilities.trajectory {
        return Err("the subject reports no logits, or no trajectory");
    }
    if capabilities.sentinels.contains(&Sentinel::Poisoned) {
        Ok(())
    } else {
        Err("the subject can't poison memory")
    }
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    let case = executions.case().clone();
    let clean = Case { world: World { poison: false, ..case.world }, ..case };
    let run = executions.in_world(&clean.world)?;
    if let Some(mut divergence) = i3::difference(executions.run(), &run) {
        divergence.detail = format!("with poison and without: {}", divergence.detail);
        divergence.standard = Standard::other("without poison", clean);
        return Ok(Judgement::Broken(Box::new(divergence)));
    }
    let all: Vec<SampleId> = executions.run().outputs.keys().copied().collect();
    equal_to_canonical(executions, &all, "there is no request")
}
