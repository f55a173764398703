//! RMS norm (docs/contract.md section 4).
//!
//! Fused: each row is summed and scaled in one go. Plain: the whole matrix is summed first, then scaled.

use std::marker::PhantomData;

use super::round::round;
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

/// Buffers of a norm, reused from launch to launch.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Scales of the rows of a plain launch.
    scales: Vec<f32>,
    /// y, before it is rounded.
    y: Vec<f32>,
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
        let (h, weight) = (&h[..m * n], &weight[..n]);
        let Scratch { scales, y } = &mut self.norm;
        y.resize(m * n, f32::NAN);
        let rows = h.chunks_exact(n).zip(y.chunks_exact_mut(n));
        if launch.fused {
            with_format!(self.contract.dtype, F => for (h, y) in rows {
                let r = self.simd.run(Scale { x: h, lanes, eps });
                self.simd.run(Apply { h, r, weight, y, format: PhantomData::<F> });
            });
            self.counts.norm_fused += 1;
        } else {
            scales.clear();
            scales.extend(h.chunks_exact(n).map(|x| self.simd.run(Scale { x, lanes, eps })));
            with_format!(self.contract.dtype, F => for ((h, y), r) in rows.zip(&*scales) {
                self.simd.run(Apply { h, r: *r, weight, y, format: PhantomData::<F> });
            });
            self.counts.norm_plain += 1;
        }
        self.log.rows(self.simd, n, y);
        round(self.simd, self.contract.dtype, y, &mut x[..m * n]);
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

/// `y = (h*r)*w`.
struct Apply<'a, F> {
    h: &'a [f32],
    r: f32,
    weight: &'a [u16],
    y: &'a mut [f32],
    format: PhantomData<F>,
}

impl<F: Format> Kernel for Apply<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for ((y, h), w) in self.y.iter_mut().zip(self.h).zip(self.weight) {
            *y = (h * self.r) * F::widen(*w);
        }
    }
}
