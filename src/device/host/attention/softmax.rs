//! The online softmax of one tile, row by row.

use std::marker::PhantomData;

use super::fold::Partial;
use crate::contract::dtype::Format;
use crate::contract::matrix_unit::{COLUMNS, ROW_BIAS, exponent};
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

/// Updates each row's maximum, sums and accumulator scale, and leaves P as a decoded row operand.
pub(super) struct Softmax<'a, F> {
    rows: Rows<'a>,
    partial: &'a mut [Partial],
    acc: &'a mut [[f32; COLUMNS]],
    p: &'a mut [f32],
    p_exponents: &'a mut [i16],
    format: PhantomData<F>,
}

impl<'a, F> Softmax<'a, F> {
    pub(super) fn new(
        rows: Rows<'a>,
        partial: &'a mut [Partial],
        acc: &'a mut [[f32; COLUMNS]],
        p: &'a mut [f32],
        p_exponents: &'a mut [i16],
    ) -> Softmax<'a, F> {
        Softmax { rows, partial, acc, p, p_exponents, format: PhantomData }
    }
}

impl<F: Format> Kernel for Softmax<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Rows { scores, width, tile, start, position, group } = self.rows;
        let columns = self.acc.len() / self.partial.len();
        let rows = self
            .partial
            .iter_mut()
            .zip(self.acc.chunks_exact_mut(columns))
            .zip(self.p.chunks_exact_mut(tile).zip(self.p_exponents.chunks_exact_mut(tile)))
            .zip(scores.chunks_exact(width / COLUMNS));
        for (i, (((partial, acc), (p, p_exponents)), scores)) in rows.enumerate() {
            // Columns `0..visible` are at or before the row's position.
            let visible = (position + i / group - start + 1).min(tile);
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
            let vectors = p.chunks_exact_mut(COLUMNS).zip(p_exponents.chunks_exact_mut(COLUMNS));
            for (j, ((p, p_exponents), scores)) in vectors.zip(scores).enumerate() {
                for k in 0..COLUMNS {
                    let masked = j * COLUMNS + k >= visible;
                    let score = if masked { f32::NEG_INFINITY } else { scores[k] };
                    let e = exp2(score - n);
                    partial.l[k] += e;
                    let bits = F::round(e);
                    p[k] = F::widen(bits);
                    p_exponents[k] = exponent::<F>(bits) + ROW_BIAS;
                }
            }
            // e is +0 past the computed columns, and l does not change.
            p[width..].fill(0.0);
            p_exponents[width..].fill(exponent::<F>(0) + ROW_BIAS);
        }
    }
}

/// The larger of `m` and the first `visible` scores; NaN if one of them is.
#[inline(always)]
fn row_max(scores: &[[f32; COLUMNS]], visible: usize, m: f32) -> f32 {
    let mut lanes = [m; COLUMNS];
    let mut nan = [m.is_nan(); COLUMNS];
    for (j, scores) in scores.iter().enumerate() {
        for k in 0..COLUMNS {
            let seen = j * COLUMNS + k < visible;
            lanes[k] = if seen && scores[k] > lanes[k] { scores[k] } else { lanes[k] };
            nan[k] |= seen && scores[k].is_nan();
        }
    }
    let mut max = lanes[0];
    for x in &lanes[1..] {
        max = if *x > max { *x } else { max };
    }
    if nan.contains(&true) { f32::NAN } else { max }
}
