//! The fold over splits, and the end of a row.

use crate::contract::scalar::exp2;
use crate::contract::simd::{Kernel, Simd};
use crate::contract::tree::tree8;

/// A row's state in one split, apart from its accumulator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partial {
    /// Running maximum; NaN sticks.
    pub(super) m: f32,
    /// Lanes of the sum of unrounded probabilities.
    pub(super) l: [f32; 8],
}

impl Partial {
    /// Before the first tile.
    pub(super) const START: Partial = Partial { m: -f32::MAX, l: [0.0; 8] };
}

/// A row's fold so far, apart from its output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    m: f32,
    l: f32,
    /// Splits that took part.
    pub(super) kept: u32,
    /// A split's maximum was NaN or +infinity.
    marked: bool,
}

impl Fold {
    /// Before the first split.
    pub(super) const START: Fold = Fold { m: 0.0, l: 0.0, kept: 0, marked: false };

    /// Folds the next split in ascending order; `out` is the row's running O.
    pub(super) fn add(&mut self, simd: Simd, partial: &Partial, acc: &[f32], out: &mut [f32]) {
        let Partial { m, l } = *partial;
        let l = tree8(&l);
        if m.is_nan() || m == f32::INFINITY {
            self.marked = true;
            return;
        }
        if l == 0.0 {
            return;
        }
        self.kept += 1;
        if self.kept == 1 {
            (self.m, self.l) = (m, l);
            out.copy_from_slice(acc);
            return;
        }
        let largest = if m > self.m { m } else { self.m };
        let (a, b) = (exp2(self.m - largest), exp2(m - largest));
        simd.run(Merge { acc, b, out, a });
        self.l = l.mul_add(b, self.l * a);
        self.m = largest;
    }
}

/// `O = fma(acc, B, O*A)`.
struct Merge<'a> {
    acc: &'a [f32],
    b: f32,
    out: &'a mut [f32],
    a: f32,
}

impl Kernel for Merge<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (out, acc) in self.out.iter_mut().zip(self.acc) {
            *out = acc.mul_add(self.b, *out * self.a);
        }
    }
}

/// `O = O * (1/Ls)`, or a row of NaN.
pub(super) struct Finish<'a> {
    pub(super) fold: &'a Fold,
    pub(super) out: &'a mut [f32],
}

impl Kernel for Finish<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        if self.fold.marked || self.fold.kept == 0 {
            self.out.fill(f32::NAN);
            return;
        }
        let inverse = 1.0 / self.fold.l;
        self.out.iter_mut().for_each(|out| *out *= inverse);
    }
}
