//! What a forecast's sequences have in flight.

use crate::schedule::Act;

use super::{Cargo, Flight, Forecast};

impl Forecast {
    fn aloft(&self, i: usize) -> Option<&Flight> {
        self.flights.iter().find(|f| !f.left && f.at == i)
    }

    /// Whether something of a sequence's present residency has not landed.
    pub(in crate::strategy) fn is_in_flight(&self, i: usize) -> bool {
        self.aloft(i).is_some()
    }

    /// Whether a sequence's K and V are on their way back from host memory.
    pub(super) fn comes_back(&self, i: usize) -> bool {
        self.aloft(i).is_some_and(|f| matches!(f.cargo, Cargo::SwapIn { .. }))
    }

    /// Tokens that are computed, or in flight.
    pub(in crate::strategy) fn launched(&self, i: usize) -> usize {
        match self.aloft(i).map(|f| &f.cargo) {
            Some(Cargo::Chunk { slice, .. }) => slice.start + slice.len,
            _ => self.sequences[i].computed,
        }
    }

    /// Takes the intent that what a sequence launches now lands late: the intent, and by how many boundaries.
    pub(super) fn landing_due(&mut self, i: usize) -> Option<(usize, u64)> {
        let computed = self.sequences[i].computed;
        let (k, act) = self.due(i, computed, |act| matches!(act, Act::Land { .. }))?;
        Some((k, act.delay()))
    }

    /// The same of what comes back at the present offer.
    pub(super) fn return_due(&mut self, i: usize) -> Option<(usize, u64)> {
        let (k, act) = self.offered(i, |act| matches!(act, Act::Land { .. }))?;
        Some((k, act.delay()))
    }

    /// Notes an intent about a launch that takes place now: by how many boundaries that is late.
    pub(super) fn lateness(&mut self, landing: Option<(usize, u64)>) -> u64 {
        landing.map_or(0, |(k, late)| {
            self.fired[k] = late > 0;
            late
        })
    }

    pub(super) fn take_off(&mut self, i: usize, cargo: Cargo, late: u64) {
        let blocks = self.sequences[i].blocks.clone();
        let lands_at = self.boundary + late;
        self.flights.push(Flight { at: i, cargo, blocks, lands_at, left: false });
    }

    /// Lands what is due.
    pub(super) fn land(&mut self) {
        let now = self.boundary;
        let (landing, aloft) =
            std::mem::take(&mut self.flights).into_iter().partition(|f: &Flight| f.lands_at < now);
        self.flights = aloft;
        for Flight { cargo, blocks, left, .. } in landing {
            match &cargo {
                Cargo::Chunk { source, .. } => self.pool.give_back(source.as_slice()),
                Cargo::SwapIn { slots } => self.swap_free += slots,
                Cargo::SwapOut => {}
            }
            match cargo {
                _ if left => self.pool.give_back(&blocks),
                Cargo::Chunk { slice, .. } => self.commit(&slice),
                Cargo::SwapOut | Cargo::SwapIn { .. } => {}
            }
        }
    }
}
