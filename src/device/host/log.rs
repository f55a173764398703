//! The log of a host that watches: digests of f32 results before they are rounded.

use std::collections::BTreeSet;

use crate::contract::digest::{self, Sums};
use crate::contract::simd::Simd;
use crate::device::LoggedRows;

/// The log; off at first.
#[derive(Debug, Default)]
pub(super) struct Log {
    on: bool,
    kept: BTreeSet<usize>,
    entries: Vec<LoggedRows>,
}

impl Log {
    pub(super) fn switch(&mut self, on: bool) {
        self.on = on;
    }

    pub(super) fn keep(&mut self, entries: &BTreeSet<usize>) {
        self.kept = entries.clone();
    }

    pub(super) fn take(&mut self) -> Vec<LoggedRows> {
        std::mem::take(&mut self.entries)
    }

    /// Whether anything is to be appended.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// An entry of whole rows.
    pub(super) fn rows(&mut self, simd: Simd, width: usize, x: &[f32]) {
        if self.on {
            let digests = x.chunks_exact(width.max(1)).map(|row| digest::row(simd, row)).collect();
            let values = self.keeps_next().then(|| x.to_vec());
            self.entries.push(LoggedRows { width, digests, values });
        }
    }

    /// An entry of rows that were made in parts; `values`, if the next entry's are kept.
    pub(super) fn sums(&mut self, width: usize, sums: &[Sums], values: Option<Vec<f32>>) {
        if self.on {
            let digests = sums.iter().map(|s| s.finish()).collect();
            self.entries.push(LoggedRows { width, digests, values });
        }
    }

    /// Whether the next entry's values are kept.
    pub(super) fn keeps_next(&self) -> bool {
        self.on && self.kept.contains(&self.entries.len())
    }
}
