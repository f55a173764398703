//! Tests of the host's operators against [`reference`], a second writing of docs/contract.md with no tiles, no
//! panels and no vectors, and against f64.

mod attention;
mod fidelity;
mod gemm;
mod operators;
mod reference;

use super::*;
use crate::contract::philox::philox4x32_10;
use crate::contract::{Constants, Dtype, MatrixUnit};

/// A stream of test data.
struct Rng {
    counter: u32,
    key: [u32; 2],
}

impl Rng {
    fn new(seed: u32) -> Rng {
        Rng { counter: 0, key: [seed, 0x7e57] }
    }

    fn next(&mut self) -> u32 {
        self.counter += 1;
        philox4x32_10([self.counter, 0, 0, 0], self.key)[0]
    }

    /// Below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    /// Uniform in [-1, 1).
    fn unit(&mut self) -> f32 {
        (self.next() as i32) as f32 / 2147483648.0
    }

    fn units(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.unit()).collect()
    }

    /// 16-bit values uniform in [-scale, scale).
    fn ordinary(&mut self, dtype: Dtype, len: usize, scale: f32) -> Vec<u16> {
        (0..len).map(|_| dtype.round(self.unit() * scale)).collect()
    }

    /// 16-bit values of many magnitudes, with zeros of both signs and subnormals; finite.
    fn wide(&mut self, dtype: Dtype, len: usize) -> Vec<u16> {
        let (mantissa, fields) = if dtype == Dtype::F16 { (10, 25) } else { (7, 255) };
        (0..len)
            .map(|_| {
                let r = self.next();
                let sign = (r & 1) << 15;
                let fraction = r >> 8 & ((1 << mantissa) - 1);
                let field = match r >> 1 & 7 {
                    0 => return sign as u16,
                    1 => 0,
                    // bf16 within a range whose products and sums stay finite.
                    _ if dtype == Dtype::Bf16 => 67 + (r >> 20) % 120,
                    _ => (r >> 20) % fields,
                };
                (sign | field << mantissa | fraction) as u16
            })
            .collect()
    }
}

fn contract(dtype: Dtype, constants: Constants) -> Contract {
    Contract {
        version: crate::contract::VERSION,
        dtype,
        matrix_unit: MatrixUnit::SM90,
        constants,
        rope_sha256: String::new(),
    }
}

/// A host per path of this machine.
fn hosts(dtype: Dtype, constants: Constants) -> Vec<Host> {
    let contract = contract(dtype, constants);
    Simd::all().into_iter().map(|s| Host::with_path(contract.clone(), s.path())).collect()
}

const DTYPES: [Dtype; 2] = [Dtype::F16, Dtype::Bf16];

/// Bits, every NaN alike.
fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }).collect()
}
