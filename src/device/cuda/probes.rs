//! What X1 asks the machine beyond the operators: single steps and chains of the matrix unit, scalar functions,
//! and the controls that must differ.

use super::compile::Source;
use super::context::{Arg, Buffer, Shape};
use super::{Cuda, CudaMatrix, require, require_len};
use crate::device::DeviceError;

/// Rows of a probe's tile.
const TILE_ROWS: usize = 16;
/// Columns of a probe's tile.
const TILE_COLUMNS: usize = 8;

/// Results of the scalar functions, element for element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalars {
    /// Bits of max.NaN(x, 1) and max.NaN(1, x).
    pub max: [Vec<u32>; 2],
    /// Bits of x + 0.
    pub plus_zero: Vec<u32>,
    /// Bits of exp2(x).
    pub exp2: Vec<u32>,
    /// Bits of log2(x).
    pub log2: Vec<u32>,
    /// r16(x), alone and in the low and high half of the packed conversion.
    pub r16: [Vec<u32>; 3],
}

impl Cuda {
    /// Chains of `steps` 16-groups on tiles: `a[tile][step][16][16]`, `b[tile][step][8][16]`, from and to
    /// `c[tile][16][8]`.
    pub fn probe_chain(
        &mut self,
        steps: usize,
        a: &[u16],
        b: &[u16],
        c: &[f32],
    ) -> Result<Vec<f32>, DeviceError> {
        let tile = TILE_ROWS * TILE_COLUMNS;
        let tiles = c.len() / tile;
        require(
            tiles > 0
                && c.len() == tiles * tile
                && a.len() == tiles * steps * 256
                && b.len() == tiles * steps * 128,
            || format!("probe_chain: {}, {} and {} elements", a.len(), b.len(), c.len()),
        )?;
        let (a, b, c) = (self.context.upload(a)?, self.context.upload(b)?, self.context.upload(c)?);
        let d = self.context.alloc::<f32>(tiles * tile)?;
        let args = [a.arg(), b.arg(), c.arg(), Arg::U32(steps as u32), d.arg()];
        let shape = Shape::new((tiles, 1, 1), 32);
        // SAFETY: probe_chain's parameters; the lengths were checked.
        unsafe { self.launch(Source::PROBE, "probe_chain", shape, &args) }?;
        self.context.download(&d, tiles * tile)
    }

    /// The scalar functions of `x`.
    pub fn probe_scalars(&mut self, x: &[f32]) -> Result<Scalars, DeviceError> {
        let n = x.len();
        let from = self.context.upload(x)?;
        let out = self.context.alloc::<u32>(8 * n)?;
        let args = [from.arg(), Arg::U32(n as u32), out.arg()];
        // SAFETY: probe_scalars' parameters; eight results an element.
        unsafe { self.launch(Source::PROBE, "probe_scalars", Shape::elements(n), &args) }?;
        let out = self.context.download(&out, 8 * n)?;
        let part = |i: usize| out[i * n..(i + 1) * n].to_vec();
        Ok(Scalars {
            max: [part(0), part(1)],
            plus_zero: part(2),
            exp2: part(3),
            log2: part(4),
            r16: [part(5), part(6), part(7)],
        })
    }

    /// Makes the device fault, and waits: an error, and the context is lost. For a process of its own.
    pub fn probe_fault(&mut self) -> Result<(), DeviceError> {
        let args = [Arg::Pointer(16)];
        // SAFETY: the kernel's one parameter; it faults on purpose, and the driver turns that into an error.
        unsafe { self.launch(Source::PROBE, "probe_fault", Shape::elements(1), &args) }?;
        self.context.synchronize()
    }

    /// The product as chains of f32 fma: a control that must differ.
    pub fn control_fma(
        &mut self,
        m: usize,
        x: &Buffer<u16>,
        w: &CudaMatrix,
    ) -> Result<Vec<f32>, DeviceError> {
        let sizes = [m, w.n, w.k, w.k_padded].map(|n| Arg::U32(n as u32));
        let shape = Shape::new((w.n.div_ceil(128), m, 1), 128);
        self.control("control_fma", m, x, w, &sizes, shape)
    }

    /// The product as chains of k8 instructions: a control that must differ.
    pub fn control_k8(
        &mut self,
        m: usize,
        x: &Buffer<u16>,
        w: &CudaMatrix,
    ) -> Result<Vec<f32>, DeviceError> {
        require(m.is_multiple_of(16) && w.n.is_multiple_of(8) && w.k == w.k_padded, || {
            format!("control_k8: {m} x {} x {}", w.n, w.k)
        })?;
        let sizes = [w.n, w.k, w.k_padded].map(|n| Arg::U32(n as u32));
        let shape = Shape::new((w.n / 8, m / 16, 1), 32);
        self.control("control_k8", m, x, w, &sizes, shape)
    }

    fn control(
        &mut self,
        name: &'static str,
        m: usize,
        x: &Buffer<u16>,
        w: &CudaMatrix,
        sizes: &[Arg],
        shape: Shape,
    ) -> Result<Vec<f32>, DeviceError> {
        require_len(name, "x", x.len(), m * w.k)?;
        let y = self.context.alloc::<f32>(m * w.n)?;
        let mut args = vec![x.arg(), w.data.arg()];
        args.extend_from_slice(sizes);
        args.push(y.arg());
        // SAFETY: the controls' parameters; x has m rows of k, y m of n.
        unsafe { self.launch(Source::PROBE, name, shape, &args) }?;
        self.context.download(&y, m * w.n)
    }
}
