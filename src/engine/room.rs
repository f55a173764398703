//! Room in the pool: blocks handed out and given back, and who goes when there are none.

use crate::lifecycle::Event;
use crate::record::{Boundary, Sentinel};
use crate::schedule::{Act, Mark};

use super::blocks::{Allocated, BlockId, Origin};
use super::deeds::Deed;
use super::fork::BlockCopy;
use super::scheduler::{Scheduler, Slice, is_computed};
use super::sequence::State;

/// What came of making room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is room; a copy may be left to be carried out.
    Made(Option<BlockCopy>),
    /// The sequence itself had to go.
    Gone,
}

impl Scheduler {
    /// Drops a reference of each block, the last one first.
    pub(super) fn free_blocks(&mut self, blocks: &[BlockId]) {
        for &block in blocks.iter().rev() {
            let references = self.pool.references(block) as usize;
            self.boundaries.near(Boundary::References, references, 2);
            if self.pool.release(block, self.index.contains(block)) && self.poison {
                self.deeds.push(Deed::Poison(block));
            }
        }
    }

    /// Allocates blocks so that sequence `i` holds `positions` and writes to no block that others use. Victims make room:
    /// whom the schedule prefers, else the youngest. With `is_late` the copy of a shared block is left to the caller.
    pub(super) fn make_room(
        &mut self,
        i: usize,
        positions: usize,
        step: &[Slice],
        is_late: bool,
    ) -> Room {
        let mut waiting = None;
        let wanted = positions.div_ceil(self.block_size);
        let missing = wanted.saturating_sub(self.sequences[i].blocks.len());
        if missing > 0 {
            self.boundaries.near(Boundary::GrowthRoom, self.pool.available(), missing);
        }
        loop {
            // Asked again after each victim: it may have been the one that the block was shared with.
            let shared = self.shared_write(i);
            if shared.is_none() && self.sequences[i].blocks.len() >= wanted {
                break;
            }
            match (self.hand_out(i), shared) {
                (Some(block), Some(at)) => {
                    let copy = self.copy_on_write(i, at, block);
                    if is_late { waiting = Some(copy) } else { self.copy(copy) }
                }
                (Some(block), None) => self.sequences[i].blocks.push(block),
                (None, _) => {
                    // Its source is needed: the copy can't wait.
                    if let Some(copy) = waiting.take() {
                        self.copy(copy);
                        continue;
                    }
                    let victim = self.victim(step);
                    self.sentinels.hit(Sentinel::PreemptForRoom);
                    self.preempt(victim, self.boundary + 1);
                    if victim == i {
                        return Room::Gone;
                    }
                }
            }
        }
        self.claim_write(i);
        Room::Made(waiting)
    }

    /// A block for sequence `i`, with one reference: the first that is free, unless the schedule places it elsewhere.
    pub(super) fn hand_out(&mut self, i: usize) -> Option<BlockId> {
        if self.pool.available() == 0 {
            return None;
        }
        let sequence = &self.sequences[i];
        let (id, residency, offers) = (sequence.id, sequence.residency, sequence.offers);
        let computed = sequence.computed;
        let due =
            |mark| mark == Mark::Offer { n: offers } || is_computed(mark, residency, computed);
        let taken = self.deviations.take(id, due, |act| matches!(act, Act::Place { .. }));
        let wanted = match taken.map(|taken| taken.act) {
            Some(Act::Place { nth }) => nth as usize,
            _ => 0,
        };
        let Allocated { block, origin, nth } = self.pool.allocate(wanted)?;
        if nth > 0 {
            self.sentinels.hit(Sentinel::Placed);
        }
        if let Some(taken) = taken {
            self.deviations.settle(taken, nth > 0);
        }
        if origin == Origin::Evicted {
            self.index.remove(block);
            self.sentinels.hit(Sentinel::Evict);
            self.note(i, Event::Evict);
        }
        self.deeds.push(Deed::HandOut { block, used: origin == Origin::Evicted });
        Some(block)
    }

    /// Who makes room. Sequences that already have their place in the step are safe.
    fn victim(&mut self, step: &[Slice]) -> usize {
        let candidates: Vec<usize> = self
            .by_priority()
            .filter(|&i| self.sequences[i].state == State::Running)
            .filter(|&i| step.iter().all(|slice| slice.index != i))
            .collect();
        let youngest = *candidates.last().expect("the sequence that asks is a candidate");
        let preferred = candidates.iter().copied().find(|&i| self.sequences[i].victim.is_some());
        let Some(chosen) = preferred else { return youngest };
        let taken = self.sequences[chosen].victim.take().expect("just seen");
        self.deviations.settle(taken, chosen != youngest);
        chosen
    }
}
