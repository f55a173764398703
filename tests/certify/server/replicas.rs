//! Engines behind one address, and which of them gets a request.

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use super::disturbances::{Disturbance, How, When};
use super::engine::Engine;
use super::faults::Faults;
use super::kinds::Front;
use super::log::Asked;
use super::model;

const NAMES: [&str; 2] = ["a", "b"];

pub(crate) struct Replicas {
    faults: Faults,
    engines: Vec<Arc<Engine>>,
    /// Requests in flight at each engine.
    in_flight: Mutex<Vec<usize>>,
}

/// A request's place at an engine, until it is dropped.
pub(crate) struct Placed<'a> {
    replicas: &'a Replicas,
    at: usize,
}

impl Replicas {
    pub(crate) fn start(faults: &Faults) -> Self {
        let mut engines = vec![Engine::start(faults.clone())];
        if faults.front.has_replicas() {
            let mut other = faults.clone();
            let (when, how) = (When::Always, How::Drift(1e-4));
            other.disturbances.push(Disturbance { when, how, rate: 1.0 });
            engines.push(Engine::start(other));
        }
        let in_flight = Mutex::new(vec![0; engines.len()]);
        Self { faults: faults.clone(), engines, in_flight }
    }

    pub(crate) fn engines(&self) -> &[Arc<Engine>] {
        &self.engines
    }

    fn counters(&self) -> MutexGuard<'_, Vec<usize>> {
        self.in_flight.lock().expect("no thread panics with the counters")
    }

    /// Finds a place for a request of the server's, by its number or by who asks.
    pub(crate) fn place(&self, number: u64, asked: &Asked) -> Placed<'_> {
        let mut in_flight = self.counters();
        if let Front::ReplicasSpilling(most) = self.faults.front {
            // An answer that its client has already may still be counted, on a machine with much to do.
            while in_flight[0] >= most && self.engines[0].load() == (0, 0) {
                drop(in_flight);
                thread::yield_now();
                in_flight = self.counters();
            }
        }
        let turn = match self.faults.front {
            Front::ReplicasByConnection => asked.connection,
            Front::ReplicasRandom => model::mix(number ^ (self.faults.life << 32)),
            Front::ReplicasSticky => {
                let client = asked.headers.get("authorization").unwrap_or(&asked.client);
                client.bytes().fold(0, |hash, byte| model::mix(hash ^ u64::from(byte)))
            }
            Front::ReplicasSpilling(most) => u64::from(in_flight[0] >= most),
            _ => number,
        };
        let at = (turn % self.engines.len() as u64) as usize;
        in_flight[at] += 1;
        Placed { replicas: self, at }
    }
}

impl Placed<'_> {
    pub(crate) fn engine(&self) -> &Engine {
        &self.replicas.engines[self.at]
    }

    /// The name of the replica, where it is told.
    pub(crate) fn name(&self) -> Option<&'static str> {
        self.replicas.faults.replicas_named.then(|| NAMES[self.at])
    }
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        // A poisoned lock must not panic in a drop.
        if let Ok(mut in_flight) = self.replicas.in_flight.lock() {
            in_flight[self.at] -= 1;
        }
    }
}
