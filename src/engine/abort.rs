//! Abort: a request ends where the schedule says, and gives back what it holds.

use crate::lifecycle::Event;
use crate::record::{Finish, Sentinel};

use super::scheduler::Scheduler;
use super::sequence::State;

impl Scheduler {
    /// Ends sequence `i`, which is waiting, resident or swapped.
    pub(super) fn abort(&mut self, i: usize) {
        self.sentinels.hit(Sentinel::Abort);
        let sequence = &mut self.sequences[i];
        match sequence.state {
            State::Running => {
                if sequence.in_prefill() {
                    self.sentinels.hit(Sentinel::AbortMidPrefill);
                }
                if sequence.blocks.iter().any(|block| self.pool.references(*block) > 1) {
                    self.sentinels.hit(Sentinel::AbortShared);
                }
                self.release(i);
            }
            State::Swapped => {
                self.sentinels.hit(Sentinel::AbortSwapped);
                let slots = std::mem::take(&mut sequence.slots);
                self.swap.give_back(&slots);
            }
            State::Future | State::Waiting | State::Finished(_) => {}
        }
        self.sequences[i].state = State::Finished(Finish::Aborted);
        self.note(i, Event::Abort);
    }
}
