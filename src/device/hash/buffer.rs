//! Buffers: one hash a row, whatever the row's width.

use std::ops::Range;

use super::mix::{POISON, fold, operator};
use crate::contract::Constants;

/// A buffer of numbers that are not there: one hash for each row written, or the tag of the weights uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashBuffer {
    len: usize,
    /// Elements a row when it was written last; 0 before.
    width: usize,
    tag: u64,
    rows: Vec<u64>,
}

impl HashBuffer {
    /// `len` elements, none of them written.
    pub(super) fn unwritten(len: usize) -> HashBuffer {
        HashBuffer { len, width: 0, tag: POISON, rows: Vec::new() }
    }

    /// `len` weights that begin with these values.
    pub(super) fn weights(len: usize, first: impl IntoIterator<Item = u64>) -> HashBuffer {
        HashBuffer { len, width: 0, tag: tag(len, first), rows: Vec::new() }
    }

    /// Elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// What stands for its values where it holds weights.
    pub(super) fn tag(&self) -> u64 {
        self.tag
    }

    /// The hash of a row.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> u64 {
        self.rows.get(row).copied().unwrap_or(POISON)
    }

    /// The first `m` rows, to read.
    pub(super) fn rows(&self, m: usize) -> impl Iterator<Item = u64> {
        (0..m).map(|row| self.row(row))
    }

    /// The first `m` rows of `width` elements, to write.
    pub(super) fn rows_mut(&mut self, m: usize, width: usize) -> &mut [u64] {
        self.width = width;
        if self.rows.len() < m {
            self.rows.resize(m, POISON);
        }
        &mut self.rows[..m]
    }

    /// Poisons every row that has one of these elements.
    pub(super) fn poison(&mut self, elements: Range<usize>) {
        // Nothing was written before the width was known.
        let Some(first) = elements.start.checked_div(self.width) else { return };
        let end = elements.end.div_ceil(self.width).min(self.rows.len());
        if !elements.is_empty() && first < end {
            self.rows[first..end].fill(POISON);
        }
    }
}

/// Weights that enter a tag: enough to tell matrices apart without making a large one.
pub(super) const SAMPLE: usize = 16;

fn tag(len: usize, first: impl IntoIterator<Item = u64>) -> u64 {
    fold(operator::WEIGHT ^ len as u64, first.into_iter().take(SAMPLE))
}

/// A weight matrix `[n][k]`: its shape, the contract's cuts of K, and a tag of its first values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashMatrix {
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) tag: u64,
    pub(super) cuts: Vec<u32>,
}

impl HashMatrix {
    /// A matrix that begins with these values.
    pub(super) fn new(
        constants: &Constants,
        n: usize,
        k: usize,
        first: impl IntoIterator<Item = u64>,
    ) -> HashMatrix {
        let cuts = constants.cuts(k, constants.splits(n, k));
        HashMatrix { n, k, tag: tag(n * k, first), cuts }
    }
}
