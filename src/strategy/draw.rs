//! Small draws from a random source.

use proptest::prelude::Rng as _;
use proptest::test_runner::TestRng;

/// A random source with the draws that generation needs. The same words give the same draws on every machine.
pub(super) struct Draw<'r> {
    rng: &'r mut TestRng,
}

impl<'r> Draw<'r> {
    pub(super) fn new(rng: &'r mut TestRng) -> Draw<'r> {
        Draw { rng }
    }

    /// A full word.
    pub(super) fn word(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Uniform in `0..n`; `n` is at least 1. The bias of a multiply-shift over 64 bits is irrelevant here.
    pub(super) fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "a draw from nothing");
        ((u128::from(self.word()) * n as u128) >> 64) as usize
    }

    /// Uniform in `from..=to`; `to` if the range is empty.
    pub(super) fn between(&mut self, from: usize, to: usize) -> usize {
        if from >= to { to } else { from + self.below(to - from + 1) }
    }

    /// True in `percent` of a hundred draws.
    pub(super) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of a non-empty list.
    pub(super) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// An index drawn by weight; at least one weight is positive.
    pub(super) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut at = self.below(weights.iter().sum());
        for (i, weight) in weights.iter().enumerate() {
            if at < *weight {
                return i;
            }
            at -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }
}
