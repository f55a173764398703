//! Inputs of X1: a stream of test data, ordinary and adversarial, a function of its seed alone.

use crate::contract::Dtype;
use crate::contract::philox::philox4x32_10;

/// A stream of test data.
#[derive(Clone, Debug)]
pub struct Rng {
    counter: u64,
    key: [u32; 2],
    block: [u32; 4],
}

impl Rng {
    /// The stream `stream` of a seed.
    pub fn new(seed: u32, stream: u32) -> Rng {
        Rng { counter: 0, key: [seed, stream], block: [0; 4] }
    }

    /// Uniform.
    pub fn draw(&mut self) -> u32 {
        let lane = (self.counter % 4) as usize;
        if lane == 0 {
            let block = self.counter / 4;
            self.block = philox4x32_10([block as u32, (block >> 32) as u32, 0, 0x5831], self.key);
        }
        self.counter += 1;
        self.block[lane]
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.draw() as usize % n
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Uniform in [-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.draw() as i32) as f32 / 2147483648.0
    }

    /// 16-bit values uniform in [-scale, scale).
    pub fn ordinary(&mut self, dtype: Dtype, len: usize, scale: f32) -> Vec<u16> {
        (0..len).map(|_| dtype.round(self.unit() * scale)).collect()
    }

    /// Finite 16-bit values of many magnitudes, with zeros of both signs and subnormals. bf16 stays within
    /// magnitudes whose products and sums are finite.
    pub fn wide(&mut self, dtype: Dtype, len: usize) -> Vec<u16> {
        let (mantissa, fields) = if dtype == Dtype::F16 { (10, 25) } else { (7, 255) };
        (0..len)
            .map(|_| {
                let r = self.draw();
                let sign = (r & 1) << 15;
                let fraction = r >> 8 & ((1 << mantissa) - 1);
                let field = match r >> 1 & 7 {
                    0 => return sign as u16,
                    1 => 0,
                    _ if dtype == Dtype::Bf16 => 67 + (r >> 20) % 120,
                    _ => (r >> 20) % fields,
                };
                (sign | field << mantissa | fraction) as u16
            })
            .collect()
    }

    /// Any 16-bit patterns: infinities and NaN too.
    pub fn patterns(&mut self, len: usize) -> Vec<u16> {
        (0..len).map(|_| self.draw() as u16).collect()
    }

    /// A tensor of one of the kinds: ordinary, of one sign with zeros, wide.
    pub fn tensor(&mut self, dtype: Dtype, len: usize) -> Vec<u16> {
        match self.below(4) {
            0 => self.wide(dtype, len),
            1 => {
                let scale = self.pick(&[1.0, 0.1]);
                let value = |rng: &mut Rng| match rng.below(4) {
                    0 => 0,
                    _ => dtype.round(rng.unit().abs() * scale),
                };
                (0..len).map(|_| value(self)).collect()
            }
            _ => {
                let scale = self.pick(&[4.0, 1.0, 0.05]);
                self.ordinary(dtype, len, scale)
            }
        }
    }

    /// f32 values: uniform in [-scale, scale), one in `special_one_in` (if not 0) any pattern at all.
    pub fn floats(&mut self, len: usize, scale: f32, special_one_in: usize) -> Vec<f32> {
        (0..len)
            .map(|_| {
                let r = self.draw();
                if special_one_in > 0 && self.below(special_one_in) == 0 {
                    f32::from_bits(r)
                } else {
                    (r as i32) as f32 / 2147483648.0 * scale
                }
            })
            .collect()
    }
}
