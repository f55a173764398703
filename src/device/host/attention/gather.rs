//! Gathers a tile of the paged pool into panels. Positions that are not written yet stay +0: the pool's
//! memory behind them is never read.

use std::ops::Range;

use super::super::HostKv;
use crate::contract::matrix_unit::COLUMNS;

/// Where a tile comes from.
pub(super) struct Source<'a> {
    pub(super) kv: &'a HostKv,
    pub(super) layer: usize,
    pub(super) blocks: &'a [u32],
    pub(super) kv_head: usize,
    pub(super) positions: Range<usize>,
    /// Positions of the sequence that hold a value.
    pub(super) written: usize,
}

impl Source<'_> {
    /// Calls `f(i, row)` for each written position `positions.start + i`, with the head's elements.
    fn each<'a>(&self, pool: &'a [u16], mut f: impl FnMut(usize, &'a [u16])) {
        let dim = self.kv.shape().head_dim;
        for position in self.positions.start..self.positions.end.min(self.written) {
            let row = self.kv.row(self.layer, self.blocks, position);
            let at = row.start + self.kv_head * dim;
            f(position - self.positions.start, &pool[at..at + dim]);
        }
    }
}

/// K as panels of eight positions, `[position/8][dim][8]`.
pub(super) fn keys(source: &Source<'_>, out: &mut [u16]) {
    let dim = source.kv.shape().head_dim;
    source.each(source.kv.k(), |i, row| {
        let panel = &mut out[i / COLUMNS * dim * COLUMNS..][..dim * COLUMNS];
        for (slots, x) in panel.chunks_exact_mut(COLUMNS).zip(row) {
            slots[i % COLUMNS] = *x;
        }
    });
}

/// V as panels of eight elements, `[dim/8][position][8]`.
pub(super) fn values(source: &Source<'_>, out: &mut [u16]) {
    let tile = source.positions.len();
    source.each(source.kv.v(), |i, row| {
        for (panel, x) in out.chunks_exact_mut(tile * COLUMNS).zip(row.chunks_exact(COLUMNS)) {
            panel[i * COLUMNS..(i + 1) * COLUMNS].copy_from_slice(x);
        }
    });
}
