//! Lifecycle events as the scheduler reports them.
//!
//! **How to report one:** call `self.note(i, Event::…)` in the branch that carries it out, after the fields of sequence `i`
//! have taken their new values. The order of calls for one sequence is the order of its events: `Admit`, `Resume` or
//! `SwapIn` at the moment of admission, then at most one of `CacheHit`, `CacheRefused`, `Fork`; `Evict` and `CowCopy` while
//! room is made, then `Chunk` or `Decode` when the step's result is taken in, then `Publish`, then a finish.
//! The state after is derived here, from the scheduler's own fields and the event alone, never from the table: the table
//! is checked against it.

use crate::lifecycle::{Event, State as Life};
use crate::record::LifeEvent;

use super::scheduler::Scheduler;
use super::sequence::State;

impl Scheduler {
    /// Appends an event of sequence `i` to the log.
    pub(super) fn note(&mut self, i: usize, event: Event) {
        self.log(i, event, self.after(i, event));
    }

    /// Appends an admission; `searched` if the schedule evicted from the sequence's prefix at this offer.
    pub(super) fn note_admission(&mut self, i: usize, event: Event, searched: bool) {
        self.log(i, event, if searched { Life::Searched } else { Life::Admitted });
    }

    fn log(&mut self, i: usize, event: Event, state: Life) {
        self.life.push(LifeEvent { id: self.sequences[i].id, event, state });
    }

    /// The state in which `event` left sequence `i`.
    fn after(&self, i: usize, event: Event) -> Life {
        let sequence = &self.sequences[i];
        // Right after a computation: everything known is computed, and a token is drawn next.
        let draws = sequence.computed == sequence.tokens.len();
        match event {
            Event::Arrive => Life::Waiting,
            Event::Admit | Event::Resume => Life::Admitted,
            Event::AdmitRefused => self.outside(i),
            Event::Evict => match sequence.state {
                State::Running => self.making_room(i),
                _ => match self.outside(i) {
                    Life::Waiting => Life::Offered,
                    Life::Preempted => Life::Reoffered,
                    Life::SwappedPrefill => Life::ReturningPrefill,
                    _ => Life::ReturningDecode,
                },
            },
            Event::CowCopy if sequence.is_decoding => Life::DecodeCopied,
            Event::CowCopy => Life::PrefillRoom,
            Event::PreemptRecompute | Event::PreemptSwap => self.outside(i),
            Event::CacheHit => Life::Attached,
            Event::CacheRefused => Life::Cold,
            Event::SwapIn if sequence.is_decoding => Life::Decoding,
            Event::SwapIn | Event::Fork => Life::Prefilling,
            Event::Decode if (sequence.computed - 1).is_multiple_of(self.block_size) => Life::Begun,
            Event::Chunk | Event::Decode if draws => Life::Drawn,
            Event::Chunk | Event::Decode => Life::Chunked,
            Event::Publish if draws => Life::Published,
            Event::Publish => Life::Prefilling,
            Event::FinishEos | Event::FinishStop | Event::FinishLength => Life::Finished,
            Event::Abort => Life::Aborted,
        }
    }

    /// State of a sequence that is not resident.
    fn outside(&self, i: usize) -> Life {
        let sequence = &self.sequences[i];
        match sequence.state {
            State::Swapped if sequence.is_decoding => Life::SwappedDecode,
            State::Swapped => Life::SwappedPrefill,
            _ if sequence.residency == 0 => Life::Waiting,
            _ => Life::Preempted,
        }
    }

    /// State of a resident sequence that has taken a block.
    fn making_room(&self, i: usize) -> Life {
        let sequence = &self.sequences[i];
        match (sequence.is_decoding, self.shared_write(i).is_some()) {
            (true, true) => Life::DecodeClaim,
            (true, false) => Life::DecodeRoom,
            (false, true) => Life::PrefillClaim,
            (false, false) if sequence.computed == 0 => Life::ColdRoom,
            (false, false) => Life::PrefillRoom,
        }
    }
}
