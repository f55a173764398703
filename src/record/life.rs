//! The log of lifecycle events: what happened to each sequence, in order.
//!
//! The scheduler appends an event in the branch that carries it out, with the state that its own fields show after it.
//! Whether the table of [`lifecycle`](crate::lifecycle) has such a transition is asked later, by coverage: the log does
//! not know the table.

use crate::lifecycle::{Event, State};

/// One event of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeEvent {
    /// Request.
    pub uid: u64,
    /// Sample of the request, from 0.
    pub sample: u32,
    /// What happened.
    pub event: Event,
    /// State after it.
    pub state: State,
}
