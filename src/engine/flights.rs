//! Late landing: chunks that were launched at one boundary and whose writes land at a later one.
//!
//! In between the request is in no other step, but it may lose its residency, and its blocks with it. Then the flight
//! keeps the blocks: they are written when it lands, and must belong to nobody else until then. What it computed is
//! dropped.

use crate::record::Sentinel;
use crate::schedule::Act;

use super::blocks::BlockId;
use super::scheduler::{Scheduler, Slice, is_computed};

/// A chunk that was launched and has not landed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) slice: Slice,
    /// The block table as of the launch.
    pub(super) blocks: Vec<BlockId>,
    /// Boundary at which it lands, after that boundary's step.
    pub(super) lands_at: u64,
    /// Whether its sequence has lost the residency since; then the references of `blocks` are the flight's.
    pub(super) left: bool,
}

impl Scheduler {
    /// Whether a chunk of the present residency of sequence `i` has not landed.
    pub(super) fn is_in_flight(&self, i: usize) -> bool {
        self.flights.iter().any(|flight| !flight.left && flight.slice.index == i)
    }

    /// Tokens of sequence `i` that are computed, or in flight: what marks are measured by.
    pub(super) fn launched(&self, i: usize) -> usize {
        let flight = self.flights.iter().find(|flight| !flight.left && flight.slice.index == i);
        flight.map_or(self.sequences[i].computed, |f| f.slice.start + f.slice.len)
    }

    /// Puts a chunk that is about to be launched in flight, if the schedule wants it to land late.
    pub(super) fn take_off(&mut self, slice: &Slice) -> bool {
        let sequence = &self.sequences[slice.index];
        let (id, residency, computed) = (sequence.id, sequence.residency, sequence.computed);
        let due = |mark| is_computed(mark, residency, computed);
        let land = |act| matches!(act, Act::Land { .. });
        let Some(taken) = self.deviations.take(id, due, land) else { return false };
        let late = taken.act.delay();
        self.deviations.settle(taken, late > 0);
        if late > 0 {
            self.flights.push(Flight {
                slice: slice.clone(),
                blocks: sequence.blocks.clone(),
                lands_at: self.boundary + late,
                left: false,
            });
        }
        late > 0
    }

    /// The sequence of a flight loses its residency: the references of its blocks go over to the flight. Returns false
    /// if nothing of it is in flight.
    pub(super) fn leave_flight(&mut self, i: usize) -> bool {
        let mut flights = self.flights.iter_mut();
        let flight = flights.find(|flight| !flight.left && flight.slice.index == i);
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

    /// The device has carried out a flight. Returns whether its result still belongs to somebody; if not, its blocks are
    /// released.
    pub(super) fn landed(&mut self, flight: &Flight) -> bool {
        self.sentinels.hit(Sentinel::LandedLate);
        if flight.left {
            self.sentinels.hit(Sentinel::LandedAfterLeaving);
            self.free_blocks(&flight.blocks);
        }
        !flight.left
    }
}
