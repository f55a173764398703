//! RMS norm (docs/contract.md section 4).
//!
//! Fused: each row is summed and scaled in one go. Plain: the whole matrix is summed first, then scaled.

use std::marker::PhantomData;

use super::{DeviceError, Host, require, require_len};
use crate::contract::dtype::{Format, with_format};
use crate::contract::simd::Kernel;
use crate::contract::tree::{LANES_MAX, lane_sum};
use crate::device::NormLaunch;

/// The operands of a norm: `h[m][n]` and `weight[n]`.
pub(super) struct Norm<'a> {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) h: &'a [f32],
    pub(super) weight: &'a [u16],
    pub(super) eps: f32,
}

impl Host {
    /// See [`super::Device::rmsnorm`].
    pub(super) fn rmsnorm_rows(
        &mut self,
        launch: NormLaunch,
        norm: Norm<'_>,
        x: &mut [u16],
    ) -> Result<(), DeviceError> {
        let Norm { m, n, h, weight, eps } = norm;
        let lanes = launch.lanes as usize;
        require(n > 0 && lanes.is_power_of_two() && lanes <= LANES_MAX, || {
            format!("rmsnorm: {lanes} lanes over {n} columns")
        })?;
        require_len("rmsnorm", "h", h.len(), m * n)?;
        require_len("rmsnorm", "weight", weight.len(), n)?;
        require_len("rmsnorm", "x", x.len(), m * n)?;
        let (h, weight, x) = (&h[..m * n], &weight[..n], &mut x[..m * n]);
        let rows = h.chunks_exact(n).zip(x.chunks_exact_mut(n));
        if launch.fused {
            with_format!(self.contract.dtype, F => for (h, x) in rows {
                let r = self.simd.run(Scale { x: h, lanes, eps });
                self.simd.run(Apply { h, r, weight, x, format: PhantomData::<F> });
            });
            self.counts.norm_fused += 1;
        } else {
            self.norm.clear();
            let scales = h.chunks_exact(n).map(|x| self.simd.run(Scale { x, lanes, eps }));
            self.norm.extend(scales);
            with_format!(self.contract.dtype, F => for ((h, x), r) in rows.zip(&self.norm) {
                self.simd.run(Apply { h, r: *r, weight, x, format: PhantomData::<F> });
            });
            self.counts.norm_plain += 1;
        }
        Ok(())
    }
}

/// `r = 1/sqrt(s/n + eps)`, s the sum of squares in lanes and tree.
pub(super) struct Scale<'a> {
    pub(super) x: &'a [f32],
    pub(super) lanes: usize,
    pub(super) eps: f32,
}

impl Kernel for Scale<'_> {
    type Out = f32;
    #[inline(always)]
    fn run(self) -> f32 {
        let s = lane_sum(self.lanes, self.x, |sum, x| x.mul_add(x, sum));
        1.0 / (s / self.x.len() as f32 + self.eps).sqrt()
    }
}

/// `x = r16((h*r)*w)`.
struct Apply<'a, F> {
    h: &'a [f32],
    r: f32,
    weight: &'a [u16],
    x: &'a mut [u16],
    format: PhantomData<F>,
}

impl<F: Format> Kernel for Apply<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for ((x, h), w) in self.x.iter_mut().zip(self.h).zip(self.weight) {
            *x = F::round((h * self.r) * F::widen(*w));
        }
    }
}
