//! The scheduler's whole state, written to the trajectory at every boundary.

use crate::record::{Finish, TrajectoryHasher};
use crate::workload::SampleId;

use super::flights::{Cargo, Flight};
use super::scheduler::Scheduler;
use super::sequence::State;

impl Scheduler {
    /// Writes the whole state to the trajectory.
    pub(super) fn hash_into(&self, hasher: &mut TrajectoryHasher) {
        hasher.tag("boundary");
        hasher.u64(self.boundary);
        for sequence in &self.sequences {
            hasher.tag("sequence");
            let state = match sequence.state {
                State::Future => 0,
                State::Waiting => 1,
                State::Running => 2,
                State::Finished(Finish::Eos) => 3,
                State::Finished(Finish::Length) => 4,
                State::Finished(Finish::Undecided) => 5,
                State::Finished(Finish::Aborted) => 6,
                State::Swapped => 7,
                State::Finished(Finish::Stop) => 8,
            };
            let numbers = [
                sequence.id.uid,
                sequence.id.sample.into(),
                state,
                sequence.computed as u64,
                sequence.indexed as u64,
                sequence.residency.into(),
                sequence.offers.into(),
                sequence.arrival,
                sequence.offer_at,
                sequence.step_at,
                sequence.rank.map_or(u64::MAX, u64::from),
                sequence.ranked_by.is_some().into(),
                sequence.victim.is_some().into(),
                sequence.row.map_or(u64::MAX, |r| r as u64),
                sequence.key[0].into(),
                sequence.key[1].into(),
                sequence.namespace.into(),
                sequence.forked.into(),
            ];
            hasher.list(numbers.into_iter());
            hasher.list(sequence.blocks.iter().copied());
            hasher.list(sequence.slots.iter().copied());
            hasher.list(sequence.evicted.iter().map(|j| *j as u64));
            hasher.list(sequence.tokens.iter().copied());
            hasher.list(sequence.text.iter().copied());
        }
        self.pool.hash_into(hasher);
        hasher.tag("swap");
        hasher.list(self.swap.free());
        hasher.tag("flights");
        for flight in &self.flights {
            let Flight { index, cargo, blocks, lands_at, left } = flight;
            let SampleId { uid, sample } = self.sequences[*index].id;
            hasher.list([uid, sample.into(), *lands_at, (*left).into()].into_iter());
            hasher.list(blocks.iter().copied());
            match cargo {
                Cargo::Chunk { slice, copy } => {
                    hasher.tag("chunk");
                    hasher.list([slice.start as u64, slice.len as u64].into_iter());
                    let copied = copy.map(|copy| [copy.from, copy.to]);
                    hasher.list(copied.into_iter().flatten().collect::<Vec<_>>().into_iter());
                }
                Cargo::SwapOut { slots } => {
                    hasher.tag("swap_out");
                    hasher.list(slots.iter().copied());
                }
                Cargo::SwapIn { slots } => {
                    hasher.tag("swap_in");
                    hasher.list(slots.iter().copied());
                }
            }
        }
        self.index.hash_into(hasher);
        hasher.tag("intents");
        hasher.list(self.deviations.state());
    }
}
