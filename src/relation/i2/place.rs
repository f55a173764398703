//! I2, placement of blocks.

use crate::record::Sentinel;
use crate::relation::{Relation, Spread};
use crate::schedule::ActKind;
use crate::strategy::Feature;

use super::{can, equal_to_canonical, fired};

/// Blocks handed out in another order than the pool's.
pub(in crate::relation) static PLACE: Relation = Relation {
    id: "I2.place",
    path: "i2::place",
    statement: "a request's bits do not depend on which physical blocks hold its K and V",
    varies: "which free block is handed out",
    gates: &[Sentinel::Placed],
    spreads: &[Spread::Fired(Sentinel::Placed), Spread::Fired(Sentinel::FragmentedTable)],
    focus: &[Feature::Place],
    every: 1,
    applies: |c| can(c, ActKind::Place, "the subject can't place blocks"),
    judge: |executions| {
        let placed = fired(executions, ActKind::Place);
        equal_to_canonical(executions, &placed, "no block was placed")
    },
};
