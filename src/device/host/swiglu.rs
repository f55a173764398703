//! SwiGLU (docs/contract.md section 9).

use std::marker::PhantomData;

use super::round::round;
use super::{DeviceError, Host, require_len};
use crate::contract::dtype::{Format, with_format};
use crate::contract::scalar::silu;
use crate::contract::simd::Kernel;

impl Host {
    /// See [`super::Device::swiglu`].
    pub(super) fn swiglu_rows(
        &mut self,
        m: usize,
        f: usize,
        gate_up: &[u16],
        z: &mut [u16],
    ) -> Result<(), DeviceError> {
        require_len("swiglu", "gate_up", gate_up.len(), m * 2 * f)?;
        require_len("swiglu", "z", z.len(), m * f)?;
        if f == 0 {
            return Ok(());
        }
        let y = &mut self.rows;
        y.resize(m * f, f32::NAN);
        with_format!(self.contract.dtype, F => {
            for (row, y) in gate_up.chunks_exact(2 * f).zip(y.chunks_exact_mut(f)) {
                let (gate, up) = row.split_at(f);
                self.simd.run(Row { gate, up, y, format: PhantomData::<F> });
            }
        });
        self.log.rows(self.simd, f, y);
        round(self.simd, self.contract.dtype, y, &mut z[..m * f]);
        Ok(())
    }
}

struct Row<'a, F> {
    gate: &'a [u16],
    up: &'a [u16],
    y: &'a mut [f32],
    format: PhantomData<F>,
}

impl<F: Format> Kernel for Row<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for ((y, g), up) in self.y.iter_mut().zip(self.gate).zip(self.up) {
            *y = silu(F::widen(*g)) * F::widen(*up);
        }
    }
}
