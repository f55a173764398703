//! The trajectory: a chained hash of the engine's whole state at every step boundary.

use sha2::{Digest as _, Sha256};

use crate::contract::hex;

/// One sha256 a boundary; entry i covers everything up to boundary i.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trajectory {
    /// The chain.
    pub boundaries: Vec<[u8; 32]>,
}

impl Trajectory {
    /// The last link in hex: equal exactly when every boundary was equal.
    pub fn hash(&self) -> String {
        hex(self.boundaries.last().unwrap_or(&[0; 32]))
    }

    /// First boundary at which two trajectories differ.
    pub fn first_difference(&self, other: &Trajectory) -> Option<usize> {
        let common = self.boundaries.len().min(other.boundaries.len());
        (0..common)
            .find(|&i| self.boundaries[i] != other.boundaries[i])
            .or_else(|| (self.boundaries.len() != other.boundaries.len()).then_some(common))
    }
}

/// Builds a trajectory. Every field is written with a length or a tag before it, so that no two states have
/// the same bytes.
pub struct TrajectoryHasher {
    chain: [u8; 32],
    buffer: Vec<u8>,
    trajectory: Trajectory,
}

impl TrajectoryHasher {
    /// A chain that starts from what is fixed for the run.
    pub fn new(start: &[u8]) -> TrajectoryHasher {
        TrajectoryHasher {
            chain: Sha256::digest(start).into(),
            buffer: Vec::with_capacity(4096),
            trajectory: Trajectory::default(),
        }
    }

    /// Opens a section.
    pub fn tag(&mut self, tag: &str) {
        self.u64(tag.len() as u64);
        self.buffer.extend_from_slice(tag.as_bytes());
    }

    /// Writes a number.
    pub fn u64(&mut self, x: u64) {
        self.buffer.extend_from_slice(&x.to_le_bytes());
    }

    /// Writes a list of numbers, its length first.
    pub fn list(&mut self, xs: impl ExactSizeIterator<Item = u64>) {
        self.u64(xs.len() as u64);
        self.buffer.reserve(8 * xs.len());
        for x in xs {
            self.u64(x);
        }
    }

    /// Writes a list of numbers below 2^32, its length first.
    pub fn list32(&mut self, xs: impl ExactSizeIterator<Item = u32>) {
        self.u64(xs.len() as u64);
        self.buffer.reserve(4 * xs.len());
        for x in xs {
            self.buffer.extend_from_slice(&x.to_le_bytes());
        }
    }

    /// Closes the boundary.
    pub fn close(&mut self) {
        let mut hasher = Sha256::new();
        hasher.update(self.chain);
        hasher.update(&self.buffer);
        self.chain = hasher.finalize().into();
        self.buffer.clear();
        self.trajectory.boundaries.push(self.chain);
    }

    /// The finished chain.
    pub fn finish(self) -> Trajectory {
        self.trajectory
    }
}
