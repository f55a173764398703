//! The log of lifecycle events: what happened to each sequence, in order.
//!
//! The scheduler appends an event in the branch that carries it out, with the state that its own fields show after it.
//! Whether the table of [`lifecycle`](crate::lifecycle) has such a transition is asked later, by coverage: the log does
//! not know the table.

use crate::lifecycle::{Event, State};
use crate::workload::SampleId;

/// One event of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeEvent {
    /// The sequence: a sample of a request.
    pub id: SampleId,
    /// What happened.
    pub event: Event,
    /// State after it.
    pub state: State,
}
