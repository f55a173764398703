//! SwiGLU (docs/contract.md section 9).

use std::marker::PhantomData;

use super::{DeviceError, require_len};
use crate::contract::Dtype;
use crate::contract::dtype::{Format, with_format};
use crate::contract::scalar::silu;
use crate::contract::simd::{Kernel, Simd};

/// See [`super::Device::swiglu`].
pub(super) fn swiglu(
    simd: Simd,
    dtype: Dtype,
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
    with_format!(dtype, F => {
        for (row, z) in gate_up.chunks_exact(2 * f).zip(z[..m * f].chunks_exact_mut(f)) {
            let (gate, up) = row.split_at(f);
            simd.run(Row { gate, up, z, format: PhantomData::<F> });
        }
    });
    Ok(())
}

struct Row<'a, F> {
    gate: &'a [u16],
    up: &'a [u16],
    z: &'a mut [u16],
    format: PhantomData<F>,
}

impl<F: Format> Kernel for Row<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for ((z, g), up) in self.z.iter_mut().zip(self.gate).zip(self.up) {
            *z = F::round(silu(F::widen(*g)) * F::widen(*up));
        }
    }
}
