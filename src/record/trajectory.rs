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

    /// Writes a number, seven bits a byte: most are small, and hashing is what a boundary costs.
    pub fn u64(&mut self, mut x: u64) {
        while x >= 0x80 {
            self.buffer.push(x as u8 | 0x80);
            x >>= 7;
        }
        self.buffer.push(x as u8);
    }

    /// Writes a list of numbers, its length first.
    pub fn list(&mut self, xs: impl ExactSizeIterator<Item: Into<u64>>) {
        self.u64(xs.len() as u64);
        self.buffer.reserve(2 * xs.len());
        for x in xs {
            self.u64(x.into());
        }
    }

    /// Writes digests, how many there are first. `count` is their number.
    pub fn digests(&mut self, count: usize, digests: impl Iterator<Item = u64>) {
        self.u64(count as u64);
        self.buffer.reserve(8 * count);
        for digest in digests {
            self.buffer.extend_from_slice(&digest.to_le_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(write: impl Fn(&mut TrajectoryHasher)) -> Vec<u8> {
        let mut hasher = TrajectoryHasher::new(&[]);
        write(&mut hasher);
        hasher.buffer
    }

    /// No number's bytes are the beginning of another's, so a list can be read in one way only.
    #[test]
    fn numbers_have_bytes_of_their_own() {
        let numbers = [0, 1, 127, 128, 129, 255, 300, 16383, 16384, u64::from(u32::MAX), u64::MAX];
        let all: Vec<Vec<u8>> = numbers.iter().map(|x| bytes(|h| h.u64(*x))).collect();
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                assert_eq!(a.starts_with(b), i == j, "{} and {}", numbers[i], numbers[j]);
            }
        }
        assert_eq!(all[4], [0x81, 1]);
        assert_eq!(all[10].len(), 10);
        let list = bytes(|h| h.list([1u32, 128].into_iter()));
        assert_eq!(list, [2, 1, 0x80, 1]);
        assert_eq!(bytes(|h| h.digests(1, [2].into_iter())), [1, 2, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// Goal: the hash is one of what was written. Method: two chains that differ in one number of the first boundary.
    #[test]
    fn another_number_changes_the_hash_from_its_boundary_on() {
        let chain = |number| {
            let mut hasher = TrajectoryHasher::new(b"start");
            for x in [1, number, 3] {
                hasher.u64(x);
                hasher.close();
            }
            hasher.finish()
        };
        let (one, other) = (chain(2), chain(4));
        assert_eq!(one.first_difference(&other), Some(1));
        assert_ne!(one.boundaries[2], other.boundaries[2]);
        assert_eq!(one, chain(2));
    }
}
