//! I2, eviction.

use crate::record::Sentinel;
use crate::relation::{Relation, Spread};
use crate::schedule::ActKind;
use crate::strategy::Feature;

use super::{can, equal_to_canonical, fired};

/// Own cached blocks that are evicted before they are looked up, and computed again.
pub(in crate::relation) static EVICT: Relation = Relation {
    id: "I2.evict",
    path: "i2::evict",
    statement: "a request's bits do not depend on which of its cached blocks were evicted before it came back",
    varies: "which cached block is evicted, and how much of the prefix is computed again",
    gates: &[Sentinel::EvictChosen],
    spreads: &[Spread::Fired(Sentinel::EvictChosen), Spread::Fired(Sentinel::EvictReread)],
    focus: &[Feature::Evict, Feature::Preempt],
    every: 1,
    applies: |c| can(c, ActKind::Evict, "the subject has no cache to evict from"),
    judge: |executions| {
        let evicted = fired(executions, ActKind::Evict);
        equal_to_canonical(executions, &evicted, "no block was evicted")
    },
};
