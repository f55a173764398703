//! Gathers a tile of the paged pool into panels. Positions that are not written yet are +0: the pool's
//! memory behind them is never read.

use std::ops::Range;

use crate::contract::matrix_unit::{COLUMNS, Unit};

/// Where a tile comes from: one head of the pool's K or V.
pub(super) struct Source<'a> {
    /// The pool's elements.
    pub(super) pool: &'a [u16],
    /// First element of each written position of the sequence, all heads.
    pub(super) offsets: &'a [usize],
    /// Elements of a position before this head's.
    pub(super) before: usize,
    pub(super) dim: usize,
    pub(super) positions: Range<usize>,
}

impl<'a> Source<'a> {
    /// This head's elements of each written position of the tile, ascending.
    fn rows(&self) -> impl Iterator<Item = &'a [u16]> + use<'a> {
        let written = self.positions.end.min(self.offsets.len());
        let (pool, before, dim) = (self.pool, self.before, self.dim);
        let offsets = &self.offsets[self.positions.start..written];
        offsets.iter().map(move |offset| &pool[offset + before..][..dim])
    }
}

/// K as panels of eight positions, `[position/8][dim][8]`. `zeros` holds at least a head of them.
pub(super) fn keys(unit: &Unit, source: &Source<'_>, zeros: &[u16], out: &mut [u16]) {
    let mut rows = source.rows();
    for panel in out.chunks_exact_mut(source.dim * COLUMNS) {
        let rows = std::array::from_fn(|_| rows.next().unwrap_or(&zeros[..source.dim]));
        unit.transpose(&rows, panel);
    }
}

/// V as panels of eight elements, `[dim/8][position][8]`.
pub(super) fn values(source: &Source<'_>, out: &mut [u16]) {
    let tile = source.positions.len();
    let columns = out.as_chunks_mut::<COLUMNS>().0;
    let mut written = 0;
    for row in source.rows() {
        for (panel, x) in row.as_chunks::<COLUMNS>().0.iter().enumerate() {
            columns[panel * tile + written] = *x;
        }
        written += 1;
    }
    if written < tile {
        for panel in columns.chunks_exact_mut(tile) {
            panel[written..].fill([0; COLUMNS]);
        }
    }
}
