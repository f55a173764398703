//! r16 of a whole buffer.

use std::marker::PhantomData;

use crate::contract::Dtype;
use crate::contract::dtype::{Format, with_format};
use crate::contract::simd::{Kernel, Simd};

/// `to[i] = r16(from[i])`.
pub(super) fn round(simd: Simd, dtype: Dtype, from: &[f32], to: &mut [u16]) {
    with_format!(dtype, F => simd.run(Round::<F> { from, to, format: PhantomData }));
}

struct Round<'a, F> {
    from: &'a [f32],
    to: &'a mut [u16],
    format: PhantomData<F>,
}

impl<F: Format> Kernel for Round<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to = F::round(*from);
        }
    }
}
