//! The matrix unit (docs/contract.md section 1), three times: [`oracle`] in exact integers, a portable fast path
//! and one with AVX2. All give the same bits on every input.
//!
//! **The fast path.** Each factor is decoded to its f32 value and its exponent. For eight columns at once,
//! `e` is the largest exponent of the terms; each product (exact in f32) is scaled by `2^(F-e)` and cut
//! toward zero by the conversion to i32; the i32 sum is exact and is cut to 24 bits on its way back.
//! A lane is exact when
//! - `e >= F - 126`: the cut unit `2^(e-F)` is a normal f32, so the result is normal or zero, the scale is
//!   finite, and a product or accumulator below `2^-126` (which f32 might have rounded) is cut to zero;
//! - `e <= 126`: every product is below `2^128`, hence finite. (The result is 24 bits times a power of two,
//!   hence exact, or at least `2^128` and an infinity, as it should be.)
//! - the i32 sum does not overflow.
//!
//! A lane without a nonzero term is +0. Every other lane goes to the oracle: infinities and NaN have the
//! exponent code [`SPECIAL`], which no range admits.
//!
//! **Layouts.** A *row* operand is contiguous in k. A *panel* holds eight columns: values `[k][8]`, exponents
//! `[k/2][8][2]`, so that one 16-bit maximum serves two products. Both take the same number of elements,
//! hence one offset finds values and exponents. K is padded with +0 to a multiple of 16.

#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod oracle;
mod portable;
#[cfg(test)]
mod tests;

use super::dtype::{Format, with_format};
use super::simd::{Level, Simd};
use super::{Dtype, MatrixUnit};

/// Columns of a panel.
pub const COLUMNS: usize = 8;
/// Elements of K per group.
pub const GROUP: usize = 16;
/// Elements of a panel per group of K.
pub const PANEL_GROUP: usize = COLUMNS * GROUP;

/// Exponent code of a zero factor: below every real sum, also next to a real exponent.
pub const ZERO: i16 = -4096;
/// Exponent code of an infinity or NaN: above every real sum, also next to [`ZERO`].
pub const SPECIAL: i16 = 12288;
/// The largest `e` of the fast path, with f32's bias.
const LARGEST: i32 = 126 + 127;
/// Sums of exponent codes below this come from zero products only.
const NO_PRODUCTS: i32 = -2048;
/// Added to the exponents of row operands, so that a sum of two codes compares with an f32's exponent field.
pub const ROW_BIAS: i16 = 127;

/// Exponent code of a factor: 1 - bias for subnormals.
#[inline(always)]
pub fn exponent<F: Format>(bits: u16) -> i16 {
    let field = (bits & 0x7fff) >> F::MANTISSA;
    let real = field.max(1) as i16 - F::BIAS as i16;
    let finite = if bits & 0x7fff == 0 { ZERO } else { real };
    if field == F::FIELD_MAX { SPECIAL } else { finite }
}

/// Decoded factors, values and exponent codes, element for element.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// f32 values.
    pub values: &'a [f32],
    /// Exponent codes.
    pub exponents: &'a [i16],
}

/// Owned decoded factors: scratch that grows and is reused.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    values: Vec<f32>,
    exponents: Vec<i16>,
}

impl Decoded {
    /// Makes room for `len` elements; what they hold is unspecified.
    pub fn reserve(&mut self, len: usize) {
        if self.values.len() < len {
            self.values.resize(len, f32::NAN);
            self.exponents.resize(len, SPECIAL);
        }
    }

    /// As an operand.
    pub fn operand(&self) -> Operand<'_> {
        Operand { values: &self.values, exponents: &self.exponents }
    }

    /// Values and exponent codes of `range`, to write.
    pub fn slots(&mut self, range: std::ops::Range<usize>) -> (&mut [f32], &mut [i16]) {
        (&mut self.values[range.clone()], &mut self.exponents[range])
    }
}

/// A chain of steps: offsets, in elements, of its row and its panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// First element of the row.
    pub row: u32,
    /// First element of the panel.
    pub panel: u32,
}

/// A matrix unit ready to run: its numerics, the dtype of its factors, and the instructions to use.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    unit: MatrixUnit,
    dtype: Dtype,
    simd: Simd,
}

impl Unit {
    /// # Panics
    /// If `unit` has more than 16 terms, a number that does not divide 16, or more than 32 fraction bits.
    pub fn new(unit: MatrixUnit, dtype: Dtype, simd: Simd) -> Unit {
        assert!(
            unit.terms > 0 && 16 % unit.terms == 0 && unit.fraction_bits <= 32,
            "no such matrix unit: {unit:?}"
        );
        Unit { unit, dtype, simd }
    }

    /// Decodes contiguous 16-bit values as row operands. The three slices have one length.
    pub fn decode_rows(&self, bits: &[u16], values: &mut [f32], exponents: &mut [i16]) {
        assert!(
            bits.len() == values.len() && bits.len() == exponents.len(),
            "{} bits into {} values and {} exponents",
            bits.len(),
            values.len(),
            exponents.len()
        );
        #[cfg(target_arch = "x86_64")]
        if self.simd.level() == Level::Avx2 {
            // SAFETY: the level proves the features; the lengths are equal.
            with_format!(self.dtype, F => unsafe { avx2::decode_rows::<F>(bits, values, exponents) });
            return;
        }
        with_format!(self.dtype, F => portable::decode_rows::<F>(bits, values, exponents));
    }

    /// Decodes 16-bit values `[k][8]` as a panel. The three slices have one length, a multiple of 16.
    pub fn decode_panel(&self, bits: &[u16], values: &mut [f32], exponents: &mut [i16]) {
        assert!(
            bits.len() == values.len()
                && bits.len() == exponents.len()
                && bits.len().is_multiple_of(16),
            "{} bits into {} values and {} exponents",
            bits.len(),
            values.len(),
            exponents.len()
        );
        #[cfg(target_arch = "x86_64")]
        if self.simd.level() == Level::Avx2 {
            // SAFETY: the level proves the features; the lengths are equal, multiples of 16.
            with_format!(self.dtype, F => unsafe { avx2::decode_panel::<F>(bits, values, exponents) });
            return;
        }
        with_format!(self.dtype, F => portable::decode_panel::<F>(bits, values, exponents));
    }

    /// Turns eight rows of `len` values (a multiple of 8) into the panel `[len][8]`.
    pub fn transpose(&self, rows: &[&[u16]; COLUMNS], out: &mut [u16]) {
        let len = rows[0].len();
        assert!(
            rows.iter().all(|r| r.len() == len)
                && out.len() == len * COLUMNS
                && len.is_multiple_of(8),
            "eight rows of {len} into a panel of {}",
            out.len()
        );
        #[cfg(target_arch = "x86_64")]
        if self.simd.level() == Level::Avx2 {
            // SAFETY: the level proves the features; the lengths were checked.
            unsafe { avx2::transpose(rows, len, out) };
            return;
        }
        for (i, slots) in out.chunks_exact_mut(COLUMNS).enumerate() {
            for (slot, row) in slots.iter_mut().zip(rows) {
                *slot = row[i];
            }
        }
    }

    /// Runs each job's chain over `groups` ascending 16-groups, from and to `c[job]`.
    ///
    /// # Panics
    /// If a job reaches past an operand's end, or `c` is not one vector per job.
    pub fn chains(
        &self,
        groups: usize,
        rows: Operand<'_>,
        panels: Operand<'_>,
        jobs: &[Job],
        c: &mut [[f32; COLUMNS]],
    ) {
        assert!(jobs.len() == c.len(), "{} jobs for {} accumulators", jobs.len(), c.len());
        let row_end = rows.values.len().min(rows.exponents.len());
        let panel_end = panels.values.len().min(panels.exponents.len());
        for job in jobs {
            assert!(
                job.row as usize + GROUP * groups <= row_end
                    && job.panel as usize + PANEL_GROUP * groups <= panel_end,
                "{job:?} of {groups} groups in a row operand of {row_end} and panels of {panel_end}"
            );
        }
        let task = Chains { unit: self.unit, groups, rows, panels, jobs };
        with_format!(self.dtype, F => self.dispatch::<F>(task, c));
    }

    fn dispatch<F: Format>(&self, task: Chains<'_>, c: &mut [[f32; COLUMNS]]) {
        match (self.simd.level(), self.unit) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the level proves the features; `chains` checked every job against the operands.
            (Level::Avx2, MatrixUnit::SM90) => unsafe { avx2::chains::<F, 16, 25>(task, c) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Level::Avx2, MatrixUnit::SM80) => unsafe { avx2::chains::<F, 8, 24>(task, c) },
            (Level::Portable, MatrixUnit::SM90) => portable::chains::<F, 16, 25>(task, c),
            (Level::Portable, MatrixUnit::SM80) => portable::chains::<F, 8, 24>(task, c),
            _ => oracle_chains::<F>(task, c),
        }
    }
}

/// The arguments of [`Unit::chains`], checked.
#[derive(Clone, Copy)]
struct Chains<'a> {
    unit: MatrixUnit,
    groups: usize,
    rows: Operand<'a>,
    panels: Operand<'a>,
    jobs: &'a [Job],
}

/// Every lane by the oracle.
fn oracle_chains<F: Format>(task: Chains<'_>, c: &mut [[f32; COLUMNS]]) {
    let terms = task.unit.terms as usize;
    for (job, c) in task.jobs.iter().zip(c) {
        for k in (0..task.groups * GROUP).step_by(terms) {
            let a = &task.rows.values[job.row as usize + k..][..terms];
            let w = &task.panels.values[job.panel as usize + k * COLUMNS..][..terms * COLUMNS];
            *c = repair::<F>(task.unit, 0xff, a, w, *c, *c);
        }
    }
}

/// The lanes of `mask` by the oracle, from decoded values (each is exactly a T16, so rounding restores it);
/// the other lanes are `r`'s.
#[cold]
#[inline(never)]
fn repair<F: Format>(
    unit: MatrixUnit,
    mask: u32,
    a: &[f32],
    w: &[f32],
    c: [f32; COLUMNS],
    mut r: [f32; COLUMNS],
) -> [f32; COLUMNS] {
    let lanes = (0..COLUMNS).filter(|lane| mask >> lane & 1 == 1);
    let nan = f32::from_bits(oracle::NAN);
    // Poisoned rows and dead chains are common enough to be worth an early way out.
    if a.iter().any(|x| x.is_nan()) {
        lanes.for_each(|lane| r[lane] = nan);
        return r;
    }
    let terms = a.len();
    let mut bits_a = [0; GROUP];
    for (bits, x) in bits_a.iter_mut().zip(a) {
        *bits = F::round(*x);
    }
    for lane in lanes {
        if c[lane].is_nan() {
            r[lane] = nan;
            continue;
        }
        let mut bits_w = [0; GROUP];
        for (bits, w) in bits_w.iter_mut().zip(w.chunks_exact(COLUMNS)) {
            *bits = F::round(w[lane]);
        }
        let (c, a, w) = (c[lane].to_bits(), &bits_a[..terms], &bits_w[..terms]);
        r[lane] = f32::from_bits(oracle::step(unit, F::DTYPE, c, a, w));
    }
    r
}
