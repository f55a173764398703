//! The online softmax of one tile, row by row.

use super::fold::Partial;
use crate::contract::matrix_unit::COLUMNS;
use crate::contract::scalar::exp2;
use crate::contract::simd::Kernel;

/// The rows of a tile.
pub(super) struct Rows<'a> {
    /// Scores, `[row][width]`; the columns from `width` on are masked in every row.
    pub(super) scores: &'a [[f32; COLUMNS]],
    /// Columns that were computed, a multiple of 8.
    pub(super) width: usize,
    /// Positions of the tile.
    pub(super) tile: usize,
    /// First position of the tile.
    pub(super) start: usize,
    /// Position of the first row.
    pub(super) position: usize,
    /// Rows per position.
    pub(super) group: usize,
}

/// Updates each row's maximum, sums and accumulator scale, and leaves e, unrounded.
pub(super) struct Softmax<'a> {
    rows: Rows<'a>,
    partial: &'a mut [Partial],
    acc: &'a mut [[f32; COLUMNS]],
    e: &'a mut [f32],
}

impl<'a> Softmax<'a> {
    /// `e` is `[row][tile]`.
    pub(super) fn new(
        rows: Rows<'a>,
        partial: &'a mut [Partial],
        acc: &'a mut [[f32; COLUMNS]],
        e: &'a mut [f32],
    ) -> Softmax<'a> {
        Softmax { rows, partial, acc, e }
    }
}

impl Kernel for Softmax<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Rows { scores, width, tile, start, position, group } = self.rows;
        let columns = self.acc.len() / self.partial.len();
        let rows = self
            .partial
            .iter_mut()
            .zip(self.acc.chunks_exact_mut(columns))
            .zip(self.e.chunks_exact_mut(tile))
            .zip(scores.chunks_exact(width / COLUMNS));
        for (i, (((partial, acc), e), scores)) in rows.enumerate() {
            // Columns `0..visible` are at or before the row's position.
            let visible = (position + i / group - start + 1).min(tile) as i32;
            let m = partial.m;
            let n = row_max(scores, visible, m);
            let alpha = exp2(m - n);
            if alpha != 1.0 {
                for x in acc.as_flattened_mut() {
                    // The addition turns a -0 into +0.
                    *x = *x * alpha + 0.0;
                }
                for l in &mut partial.l {
                    *l *= alpha;
                }
            }
            partial.m = n;
            let mut l = partial.l;
            let (e, rest) = e.split_at_mut(width);
            let vectors = e.as_chunks_mut::<COLUMNS>().0.iter_mut().zip(scores);
            for (j, (e, scores)) in vectors.enumerate() {
                let seen = mask(scores, visible - (j * COLUMNS) as i32);
                for k in 0..COLUMNS {
                    e[k] = exp2(seen[k] - n);
                }
                for k in 0..COLUMNS {
                    l[k] += e[k];
                }
            }
            partial.l = l;
            // e is +0 past the computed columns, and l does not change.
            rest.fill(0.0);
        }
    }
}

/// The scores with -infinity from column `visible` on.
#[inline(always)]
fn mask(scores: &[f32; COLUMNS], visible: i32) -> [f32; COLUMNS] {
    let mut seen = *scores;
    for (k, seen) in seen.iter_mut().enumerate() {
        *seen = if k as i32 >= visible { f32::NEG_INFINITY } else { *seen };
    }
    seen
}

/// The larger of `m` and the first `visible` scores; NaN if one of them is.
#[inline(always)]
fn row_max(scores: &[[f32; COLUMNS]], visible: i32, m: f32) -> f32 {
    let mut lanes = [m; COLUMNS];
    let mut nan = [0_u32; COLUMNS];
    for (j, scores) in scores.iter().enumerate() {
        let seen = mask(scores, visible - (j * COLUMNS) as i32);
        for k in 0..COLUMNS {
            nan[k] |= u32::from(seen[k].is_nan());
        }
        for k in 0..COLUMNS {
            lanes[k] = if seen[k] > lanes[k] { seen[k] } else { lanes[k] };
        }
    }
    let mut max = lanes[0];
    for x in &lanes[1..] {
        max = if *x > max { *x } else { max };
    }
    let nan = nan.iter().fold(u32::from(m.is_nan()), |any, nan| any | nan);
    if nan != 0 { f32::NAN } else { max }
}
