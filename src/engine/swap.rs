//! Swap: preemption that keeps K and V in host memory.

use crate::lifecycle::Event;
use crate::record::{Boundary, Inert, Sentinel};

use super::deeds::Deed;
use super::flights::Cargo;
use super::scheduler::Scheduler;
use super::sequence::State;

/// A block's place in host memory.
pub(super) type SlotId = u32;

/// The ledger of host memory: which slots are free, which are taken.
#[derive(Clone, Debug)]
pub(super) struct SwapPool {
    /// Free slots; the one given back last is handed out first.
    free: Vec<SlotId>,
    taken: Vec<bool>,
}

impl SwapPool {
    /// A pool of `slots` free slots.
    pub(super) fn new(slots: u32) -> SwapPool {
        SwapPool { free: (0..slots).rev().collect(), taken: vec![false; slots as usize] }
    }

    /// Takes `count` slots, or none if there are not as many.
    fn take(&mut self, count: usize) -> Option<Vec<SlotId>> {
        let left = self.free.len().checked_sub(count)?;
        let slots = self.free.split_off(left);
        for &slot in &slots {
            assert!(!self.taken[slot as usize], "swap slot {slot} handed out while in use");
            self.taken[slot as usize] = true;
        }
        Some(slots)
    }

    /// Gives slots back.
    pub(super) fn give_back(&mut self, slots: &[SlotId]) {
        for &slot in slots.iter().rev() {
            assert!(self.taken[slot as usize], "swap slot {slot} given back while free");
            self.taken[slot as usize] = false;
            self.free.push(slot);
        }
    }

    /// Whether each slot is taken, for audits.
    pub(super) fn taken(&self) -> &[bool] {
        &self.taken
    }

    /// Every slot is free, exactly once; the error names the first that is not.
    pub(super) fn check_idle(&self) -> Result<(), String> {
        let mut seen = vec![0u32; self.taken.len()];
        for slot in &self.free {
            seen[*slot as usize] += 1;
        }
        let wrong = (0..seen.len()).find(|&slot| self.taken[slot] || seen[slot] != 1);
        wrong.map_or(Ok(()), |slot| {
            let taken = if self.taken[slot] { "taken" } else { "not taken" };
            Err(format!(
                "idle swap pool: slot {slot} is {taken} and stands {} times in the free list",
                seen[slot]
            ))
        })
    }

    /// The free list: for the trajectory.
    pub(super) fn free(&self) -> impl ExactSizeIterator<Item = SlotId> {
        self.free.iter().copied()
    }
}

impl Scheduler {
    /// Sends the K and V of a resident sequence to host memory and takes its blocks; it may be offered again from
    /// boundary `offer_at` on. It stays if there is nothing to send, or no room.
    pub(super) fn swap_out(&mut self, i: usize, offer_at: u64) -> Result<(), Inert> {
        // What is on its way back from there has not left there either.
        let (mut blocks, positions) = self.standing(i);
        if positions == 0 {
            return Err(Inert::NothingToSwap);
        }
        let held = positions.div_ceil(self.block_size);
        blocks.truncate(held);
        self.boundaries.near(Boundary::SwapRoom, self.swap.free.len(), held);
        let Some(slots) = self.swap.take(held) else {
            self.sentinels.hit(Sentinel::SwapNoRoom);
            return Err(Inert::NoSwapRoom);
        };
        // Behind a chunk in flight it waits for nothing: it takes what stands.
        let landing = if self.is_in_flight(i) { None } else { self.landing_due(i) };
        let late = self.lateness(landing);
        self.sentinels.hit(Sentinel::SwapOut);
        let sequence = &self.sequences[i];
        if sequence.in_prefill() {
            self.sentinels.hit(Sentinel::SwapMidPrefill);
        }
        if sequence.was_swapped {
            self.sentinels.hit(Sentinel::SwapAgain);
        }
        let left = self.sequences[i].blocks[..held].to_vec();
        let mut offer_at = offer_at;
        if late > 0 {
            self.take_off(i, Cargo::SwapOut { slots: slots.clone() }, late);
            offer_at = offer_at.max(self.boundary + late + 1);
        } else {
            self.deeds.push(Deed::SwapOut { blocks, slots: slots.clone() });
        }
        self.release(i);
        let sequence = &mut self.sequences[i];
        sequence.slots = slots;
        sequence.left = left;
        sequence.was_swapped = true;
        sequence.state = State::Swapped;
        sequence.offer_at = offer_at;
        sequence.indexed = 0;
        sequence.row = None;
        self.note(i, Event::PreemptSwap);
        Ok(())
    }

    /// Brings the K and V of a swapped sequence back to blocks of the pool, of which there are enough.
    pub(super) fn swap_in(&mut self, i: usize) {
        let slots = std::mem::take(&mut self.sequences[i].slots);
        let blocks: Vec<_> = slots
            .iter()
            .map(|_| self.hand_out(i).expect("admission looked for enough blocks"))
            .collect();
        self.sentinels.hit(Sentinel::SwapIn);
        let sequence = &mut self.sequences[i];
        if blocks != std::mem::take(&mut sequence.left) {
            self.sentinels.hit(Sentinel::SwapMoved);
        }
        sequence.blocks.clone_from(&blocks);
        sequence.residency += 1;
        sequence.state = State::Running;
        sequence.step_at = self.boundary;
        self.note(i, Event::SwapIn);
        let landing = self.return_due(i);
        let late = self.lateness(landing);
        if late > 0 {
            return self.take_off(i, Cargo::SwapIn { slots }, late);
        }
        self.swap.give_back(&slots);
        self.deeds.push(Deed::SwapIn { slots, blocks });
        self.look_at_swapped_in(i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_all_or_none_and_a_leak_is_named() {
        let mut pool = SwapPool::new(3);
        assert_eq!(pool.take(4), None);
        let two = pool.take(2).unwrap();
        assert_eq!(pool.take(2), None);
        assert!(pool.check_idle().unwrap_err().contains("is taken"));
        let one = pool.take(1).unwrap();
        assert_eq!(pool.take(0), Some(vec![]));
        pool.give_back(&two);
        pool.give_back(&one);
        assert!(pool.check_idle().is_ok());
        pool.free.pop();
        assert!(pool.check_idle().unwrap_err().contains("stands 0 times"));
    }
}
