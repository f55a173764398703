//! I2, preemption by swap.

use crate::record::{KvMoment, Sentinel};
use crate::relation::{Relation, Spread};
use crate::schedule::ActKind;
use crate::strategy::Feature;

use super::{can_with_kv, equal_to_canonical, read_at};

/// Preemption that keeps K and V in host memory, repeatedly and in the middle of a prefill.
pub(in crate::relation) static SWAP: Relation = Relation {
    id: "I2.swap",
    path: "i2::swap",
    statement: "a request's bits do not depend on its K and V having been in host memory, nor on the blocks that they came back to",
    varies: "preemption by swap: moment, repetition, absence, room in host memory, when its copies land",
    gates: &[Sentinel::SwapIn],
    spreads: &[
        Spread::Fired(Sentinel::SwapIn),
        Spread::Fired(Sentinel::SwapMidPrefill),
        Spread::Rare(Sentinel::SwapAgain),
        Spread::Fired(Sentinel::SwapMoved),
        Spread::Fired(Sentinel::SwapOutLandedLate),
        Spread::Fired(Sentinel::SwapInLandedLate),
        Spread::Rare(Sentinel::SwapNoRoom),
    ],
    focus: &[Feature::Swap, Feature::Cut, Feature::Land],
    every: 1,
    applies: |c| can_with_kv(c, ActKind::Swap, "the subject can't swap"),
    judge: |executions| {
        let back = read_at(executions, KvMoment::SwappedIn);
        equal_to_canonical(executions, &back, "no request came back from host memory")
    },
};
