//! The log of a host that watches: digests of f32 results before they are rounded.

use crate::contract::digest::{self, Sums};
use crate::contract::simd::Simd;
use crate::device::LoggedRows;

/// The log; off at first.
#[derive(Debug, Default)]
pub(super) struct Log {
    on: bool,
    entries: Vec<LoggedRows>,
}

impl Log {
    pub(super) fn switch(&mut self, on: bool) {
        self.on = on;
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
            self.entries.push(LoggedRows { width, digests });
        }
    }

    /// An entry of rows that were made in parts.
    pub(super) fn sums(&mut self, width: usize, sums: &[Sums]) {
        if self.on {
            let digests = sums.iter().map(|s| s.finish()).collect();
            self.entries.push(LoggedRows { width, digests });
        }
    }
}
