//! Lifecycle events as the scheduler reports them.
//!
//! **How to report one:** call `self.note(i, Event::…)` in the branch that carries it out, after the fields of sequence `i`
//! have taken their new values. The order of calls for one sequence is the order of its events: `Evict` and `CowCopy`
//! while room is made, then `Chunk` or `Decode` when the step's result is taken in, then `Publish`, then a finish;
//! `Admit`, `Resume` or `SwapIn` at the moment of admission, then at most one of `CacheHit`, `CacheRefused`, `Fork`.
//! The state after is derived here, from the sequence's fields and the event alone, never from the table: the table is
//! checked against it.

use crate::lifecycle::{Event, State as Life};
use crate::record::LifeEvent;

use super::scheduler::Scheduler;
use super::sequence::{Sequence, State};

impl Scheduler {
    /// Appends an event of sequence `i` to the log.
    pub(super) fn note(&mut self, i: usize, event: Event) {
        let sequence = &self.sequences[i];
        let state = after(sequence, event);
        self.life.push(LifeEvent { uid: sequence.uid, sample: 0, event, state });
    }
}

/// The state in which `event` left the sequence.
fn after(sequence: &Sequence, event: Event) -> Life {
    // Nothing but the newest token is left to compute, and that was drawn here: it decodes.
    let is_decoding = sequence.is_decoding;
    let known = sequence.computed == sequence.tokens.len();
    match event {
        Event::Arrive => Life::Waiting,
        Event::AdmitRefused if sequence.residency == 0 => Life::Waiting,
        Event::AdmitRefused | Event::PreemptRecompute => Life::Preempted,
        Event::Admit | Event::Resume => Life::Admitted,
        Event::CacheHit | Event::CacheRefused | Event::Fork => Life::Prefilling,
        Event::SwapIn if is_decoding => Life::Decoding,
        Event::SwapIn => Life::Prefilling,
        Event::PreemptSwap if is_decoding => Life::SwappedDecode,
        Event::PreemptSwap => Life::SwappedPrefill,
        // Chosen at an offer, before the lookup.
        Event::Evict if sequence.state == State::Waiting && sequence.residency == 0 => {
            Life::Offered
        }
        Event::Evict if sequence.state == State::Waiting => Life::Reoffered,
        Event::Evict | Event::CowCopy if is_decoding => Life::DecodeRoom,
        Event::Evict | Event::CowCopy => Life::PrefillRoom,
        // The token is drawn right after: everything known is computed.
        Event::Chunk | Event::Decode if known => Life::Drawn,
        Event::Chunk | Event::Decode => Life::Chunked,
        Event::Publish if known => Life::Published,
        Event::Publish => Life::Prefilling,
        Event::FinishEos | Event::FinishStop | Event::FinishLength => Life::Finished,
        Event::Abort => Life::Aborted,
    }
}
