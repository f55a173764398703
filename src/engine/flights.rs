//! Late landing: chunks, copies and swaps that were launched at one boundary and whose writes land at a later one.
//!
//! In between the request is in no step, but it may lose its residency, and its blocks with it. Then the flight keeps
//! them: they are written when it lands, and must belong to nobody else until then. What a flight reads from, a shared
//! block that is copied or slots of host memory, is the flight's until it lands, too: nobody may write there before it
//! was read. What comes too late for its request is carried out all the same, and dropped.

use crate::record::{KvMoment, Sentinel};
use crate::schedule::{Act, Mark};

use super::blocks::BlockId;
use super::deeds::{Deed, KvRead};
use super::deviations::Taken;
use super::fork::BlockCopy;
use super::scheduler::{Scheduler, Slice, is_computed};
use super::swap::SlotId;

/// What is in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cargo {
    /// A chunk, after the copy of the shared block that it writes to first, if there is one. The reference to the copy's
    /// source is the flight's.
    Chunk { slice: Slice, copy: Option<BlockCopy> },
    /// K and V on their way to host memory. The slots are the sequence's, which is not offered before they have landed.
    SwapOut { slots: Vec<SlotId> },
    /// K and V on their way back. The slots are the flight's.
    SwapIn { slots: Vec<SlotId> },
}

/// Something that was launched and has not landed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    /// Index of the sequence.
    pub(super) index: usize,
    pub(super) cargo: Cargo,
    /// The block table as of the launch.
    pub(super) blocks: Vec<BlockId>,
    /// Boundary at which it lands, after that boundary's step.
    pub(super) lands_at: u64,
    /// Whether its sequence has lost the residency since; then the references of `blocks` are the flight's.
    pub(super) left: bool,
}

impl Flight {
    /// The chunk that is in flight.
    pub(super) fn chunk(&self) -> Option<&Slice> {
        match &self.cargo {
            Cargo::Chunk { slice, .. } => Some(slice),
            Cargo::SwapOut { .. } | Cargo::SwapIn { .. } => None,
        }
    }

    /// The copy that is in flight with a chunk.
    pub(super) fn copy(&self) -> Option<BlockCopy> {
        match self.cargo {
            Cargo::Chunk { copy, .. } => copy,
            Cargo::SwapOut { .. } | Cargo::SwapIn { .. } => None,
        }
    }

    /// The blocks whose references are the flight's.
    pub(super) fn held(&self) -> impl Iterator<Item = BlockId> {
        let left = if self.left { &self.blocks[..] } else { &[] };
        left.iter().copied().chain(self.copy().map(|copy| copy.from))
    }
}

impl Scheduler {
    /// What is in flight for the present residency of sequence `i`.
    fn aloft(&self, i: usize) -> Option<&Flight> {
        self.flights.iter().find(|flight| !flight.left && flight.index == i)
    }

    /// Whether something of the present residency of sequence `i` has not landed.
    pub(super) fn is_in_flight(&self, i: usize) -> bool {
        self.aloft(i).is_some()
    }

    /// Tokens of sequence `i` that are computed, or in flight: what marks are measured by.
    pub(super) fn launched(&self, i: usize) -> usize {
        let slice = self.aloft(i).and_then(Flight::chunk);
        slice.map_or(self.sequences[i].computed, |slice| slice.start + slice.len)
    }

    /// Where K and V of sequence `i` stand by now: blocks in logical order, and the number of positions. A copy that has
    /// not landed stands in its source; what comes back from host memory is nowhere in the pool.
    pub(super) fn standing(&self, i: usize) -> (Vec<BlockId>, usize) {
        let sequence = &self.sequences[i];
        let (mut blocks, mut positions) = (sequence.blocks.clone(), sequence.computed);
        match self.aloft(i).map(|flight| &flight.cargo) {
            Some(Cargo::Chunk { copy: Some(BlockCopy { from, to }), .. }) => {
                blocks.iter_mut().filter(|block| *block == to).for_each(|block| *block = *from);
            }
            Some(Cargo::SwapIn { .. }) => positions = 0,
            Some(Cargo::Chunk { .. } | Cargo::SwapOut { .. }) | None => {}
        }
        (blocks, positions)
    }

    /// Takes the intent that the chunk, or the swap to host memory, that sequence `i` launches now lands late.
    pub(super) fn landing_due(&mut self, i: usize) -> Option<Taken> {
        let sequence = &self.sequences[i];
        let (id, residency, computed) = (sequence.id, sequence.residency, sequence.computed);
        let due = |mark| is_computed(mark, residency, computed);
        self.deviations.take(id, due, |act| matches!(act, Act::Land { .. }))
    }

    /// Takes the intent that what comes back at the present offer of sequence `i` lands late.
    pub(super) fn return_due(&mut self, i: usize) -> Option<Taken> {
        let sequence = &self.sequences[i];
        let (id, n) = (sequence.id, sequence.offers);
        let due = |mark| mark == Mark::Offer { n };
        self.deviations.take(id, due, |act| matches!(act, Act::Land { .. }))
    }

    /// Settles an intent about a launch that takes place now. Returns by how many boundaries that is late.
    pub(super) fn lateness(&mut self, taken: Option<Taken>) -> u64 {
        taken.map_or(0, |taken| {
            let late = taken.act.delay();
            self.deviations.settle(taken, late > 0);
            late
        })
    }

    /// Puts in flight what sequence `i` launches.
    pub(super) fn take_off(&mut self, i: usize, cargo: Cargo, late: u64) {
        let blocks = self.sequences[i].blocks.clone();
        let lands_at = self.boundary + late;
        self.flights.push(Flight { index: i, cargo, blocks, lands_at, left: false });
    }

    /// The sequence of a flight loses its residency: the references of its blocks go over to the flight. Returns false
    /// if nothing of it is in flight.
    pub(super) fn leave_flight(&mut self, i: usize) -> bool {
        let mut flights = self.flights.iter_mut();
        let flight = flights.find(|flight| !flight.left && flight.index == i);
        flight.is_some_and(|flight| {
            flight.left = true;
            true
        })
    }

    /// The flights that land now, at the end of the boundary whose decisions were taken last.
    pub(super) fn landings(&mut self) -> Vec<Flight> {
        let now = self.boundary;
        let (landing, aloft) = self.flights.drain(..).partition(|f: &Flight| f.lands_at < now);
        self.flights = aloft;
        landing
    }

    /// Asks for the copies that land with a flight, before its chunk, and gives back what they were read from; of a swap,
    /// also what nobody waits for any more.
    pub(super) fn land_copies(&mut self, flight: &Flight) {
        let Flight { index, cargo, blocks, lands_at: _, left } = flight;
        match cargo {
            Cargo::Chunk { copy: None, .. } => {}
            Cargo::Chunk { copy: Some(copy), .. } => {
                self.sentinels.hit(Sentinel::CopyLandedLate);
                if *left {
                    self.sentinels.hit(Sentinel::CopyLandedAfterLeaving);
                }
                self.copy(*copy);
            }
            Cargo::SwapOut { slots } => {
                self.sentinels.hit(Sentinel::SwapOutLandedLate);
                let (blocks, slots) = (blocks.clone(), slots.clone());
                self.deeds.push(Deed::SwapOut { blocks: blocks.clone(), slots });
                self.free_blocks(&blocks);
            }
            Cargo::SwapIn { slots } => {
                self.sentinels.hit(Sentinel::SwapInLandedLate);
                self.deeds.push(Deed::SwapIn { slots: slots.clone(), blocks: blocks.clone() });
                self.swap.give_back(slots);
                if *left {
                    self.sentinels.hit(Sentinel::CopyLandedAfterLeaving);
                    self.free_blocks(blocks);
                } else {
                    self.look_at_swapped_in(*index);
                }
            }
        }
    }

    /// Asks for a look at what has come back from host memory.
    pub(super) fn look_at_swapped_in(&mut self, i: usize) {
        let sequence = &self.sequences[i];
        self.deeds.push(Deed::Read(KvRead {
            id: sequence.id,
            residency: sequence.residency,
            moment: KvMoment::SwappedIn,
            blocks: sequence.blocks.clone(),
            positions: sequence.computed,
        }));
    }

    /// The device has carried out the chunk of a flight. Returns whether its result still belongs to somebody; if not, its
    /// blocks are released.
    pub(super) fn landed(&mut self, flight: &Flight) -> bool {
        self.sentinels.hit(Sentinel::LandedLate);
        if flight.left {
            self.sentinels.hit(Sentinel::LandedAfterLeaving);
            self.free_blocks(&flight.blocks);
        }
        !flight.left
    }
}
