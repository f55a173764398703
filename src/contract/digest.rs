//! Digests of rows (docs/contract.md section 13): free of order, one multiplication chain per element.

use super::dtype::{Dtype, Format, with_format};
use super::simd::{Kernel, Simd};

/// A digest being made: two wrapping sums, over the columns seen so far in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    a: u32,
    b: u32,
}

/// The contribution of one element.
#[inline(always)]
fn mix(x: f32, column: u32) -> (u32, u32) {
    let bits = if x.is_nan() { 0x7fff_ffff } else { x.to_bits() };
    let v = (bits ^ column.wrapping_add(1).wrapping_mul(0x9e37_79b1)).wrapping_mul(0x85eb_ca6b);
    let v = (v ^ (v >> 16)).wrapping_mul(0xc2b2_ae35);
    let v = v ^ (v >> 13);
    (v, v.wrapping_mul(0x27d4_eb2f) ^ (v >> 7))
}

impl Sums {
    #[inline(always)]
    fn add(&mut self, x: f32, column: u32) {
        let (a, b) = mix(x, column);
        self.a = self.a.wrapping_add(a);
        self.b = self.b.wrapping_add(b);
    }

    /// Adds columns `first..` of the row.
    pub fn add_columns(&mut self, simd: Simd, x: &[f32], first: u32) {
        let Sums { a, b } = simd.run(Row { x, first });
        self.a = self.a.wrapping_add(a);
        self.b = self.b.wrapping_add(b);
    }

    /// The digest.
    #[inline(always)]
    pub fn finish(self) -> u64 {
        u64::from(self.a) | u64::from(self.b) << 32
    }
}

/// Digest of a row of f32; element `i` is column `i`.
pub fn row(simd: Simd, x: &[f32]) -> u64 {
    simd.run(Row { x, first: 0 }).finish()
}

/// Digest of a row of 16-bit values, widened.
pub fn row16(simd: Simd, dtype: Dtype, x: &[u16]) -> u64 {
    with_format!(dtype, F => simd.run(Row16::<F>(x, std::marker::PhantomData)))
}

struct Row<'a> {
    x: &'a [f32],
    first: u32,
}

impl Kernel for Row<'_> {
    type Out = Sums;
    #[inline(always)]
    fn run(self) -> Sums {
        let mut sums = Sums::default();
        for (i, x) in self.x.iter().enumerate() {
            sums.add(*x, self.first.wrapping_add(i as u32));
        }
        sums
    }
}

struct Row16<'a, F>(&'a [u16], std::marker::PhantomData<F>);

impl<F: Format> Kernel for Row16<'_, F> {
    type Out = u64;
    #[inline(always)]
    fn run(self) -> u64 {
        let mut sums = Sums::default();
        for (column, x) in self.0.iter().enumerate() {
            sums.add(F::widen(*x), column as u32);
        }
        sums.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(x: &[(f32, u32)]) -> u64 {
        let mut sums = Sums::default();
        x.iter().for_each(|(x, column)| sums.add(*x, *column));
        sums.finish()
    }

    /// Feeds the same (value, column) pairs in another order, and through every path.
    #[test]
    fn a_digest_does_not_depend_on_the_order_or_the_path() {
        let row: Vec<f32> = (0..777).map(|i| (i as f32 - 300.0) * 0.37).collect();
        let mut pairs: Vec<(f32, u32)> = row.iter().copied().zip(0..).collect();
        let digest = plain(&pairs);
        pairs.reverse();
        pairs.swap(3, 500);
        assert_eq!(plain(&pairs), digest);
        for simd in Simd::all() {
            assert_eq!(super::row(simd, &row), digest, "{simd:?}");
            let mut parts = Sums::default();
            parts.add_columns(simd, &row[500..], 500);
            parts.add_columns(simd, &row[..500], 0);
            assert_eq!(parts.finish(), digest, "{simd:?} in parts");
            for dtype in [Dtype::F16, Dtype::Bf16] {
                let bits: Vec<u16> = row.iter().map(|x| dtype.round(*x)).collect();
                let wide: Vec<f32> = bits.iter().map(|x| dtype.widen(*x)).collect();
                assert_eq!(row16(simd, dtype, &bits), super::row(simd, &wide), "{dtype:?}");
            }
        }
    }

    /// Flips every bit of every element of a row, and swaps neighbours.
    #[test]
    fn one_flipped_bit_or_two_swapped_columns_change_a_digest() {
        let simd = Simd::all()[0];
        let row: Vec<f32> = (0..33).map(|i| (i as f32 + 0.5) * 1.7).collect();
        let digest = super::row(simd, &row);
        for i in 0..row.len() {
            for bit in 0..32 {
                let mut other = row.clone();
                other[i] = f32::from_bits(other[i].to_bits() ^ 1 << bit);
                assert_ne!(super::row(simd, &other), digest, "bit {bit} of element {i}");
            }
            let mut other = row.clone();
            other.swap(i, (i + 1) % row.len());
            assert_ne!(super::row(simd, &other), digest, "swap at {i}");
        }
    }

    #[test]
    fn every_nan_has_one_digest_and_the_zeros_have_two() {
        let simd = Simd::all()[0];
        let of = |bits: u32| super::row(simd, &[1.0, f32::from_bits(bits)]);
        assert_eq!(of(0x7fc0_0000), of(0x7fff_ffff));
        assert_eq!(of(0xffc0_1234), of(0x7fff_ffff));
        assert_ne!(of(0), of(0x8000_0000));
    }
}
