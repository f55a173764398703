//! Storage dtypes and the two conversions that the contract names: `r16` and `w`.
//!
//! Both conversions are free of branches, so that a loop over them vectorises; [`Format`] is the dtype as a
//! type, for loops that must not test it per element.

use serde::{Deserialize, Serialize};

/// The 16-bit storage type T16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// bfloat16: 8 exponent bits, 7 mantissa bits.
    Bf16,
    /// IEEE binary16: 5 exponent bits, 10 mantissa bits.
    F16,
}

impl Dtype {
    /// `r16`: round to nearest even; f16 overflow gives infinity, NaN gives 0x7fff.
    #[inline]
    pub fn round(self, x: f32) -> u16 {
        match self {
            Dtype::Bf16 => Bf16::round(x),
            Dtype::F16 => F16::round(x),
        }
    }

    /// `w`: exact widening, subnormals kept.
    #[inline]
    pub fn widen(self, bits: u16) -> f32 {
        match self {
            Dtype::Bf16 => Bf16::widen(bits),
            Dtype::F16 => F16::widen(bits),
        }
    }

    /// Name as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::F16 => "f16",
        }
    }
}

/// A [`Dtype`] as a type.
pub trait Format: Copy + Send + Sync + 'static {
    /// The dtype.
    const DTYPE: Dtype;
    /// Stored mantissa bits.
    const MANTISSA: u32;
    /// Exponent bias.
    const BIAS: i32;
    /// Exponent field of infinities and NaN.
    const FIELD_MAX: u16 = (2 * Self::BIAS + 1) as u16;
    /// [`Dtype::round`].
    fn round(x: f32) -> u16;
    /// [`Dtype::widen`].
    fn widen(bits: u16) -> f32;
}

/// [`Dtype::Bf16`] as a type.
#[derive(Clone, Copy, Debug)]
pub struct Bf16;

/// [`Dtype::F16`] as a type.
#[derive(Clone, Copy, Debug)]
pub struct F16;

impl Format for Bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
    const MANTISSA: u32 = 7;
    const BIAS: i32 = 127;

    #[inline(always)]
    fn round(x: f32) -> u16 {
        let bits = x.to_bits();
        // Half of a unit in the last place, and one less where the kept mantissa is even.
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff } else { rounded as u16 }
    }

    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }
}

impl Format for F16 {
    const DTYPE: Dtype = Dtype::F16;
    const MANTISSA: u32 = 10;
    const BIAS: i32 = 15;

    #[inline(always)]
    fn round(x: f32) -> u16 {
        let bits = x.to_bits();
        let sign = (bits >> 16) & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        // Below 2^-14 the addition of 0.5 shifts the mantissa to units of 2^-24 and rounds it to even.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
        // Above, the exponent is rebased and 13 bits are rounded off; a carry may end in infinity.
        let normal =
            magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
        let finite = if magnitude < 113 << 23 { subnormal } else { normal };
        let signed = sign | if magnitude >= 143 << 23 { 0x7c00 } else { finite };
        if magnitude > 0x7f80_0000 { 0x7fff } else { signed as u16 }
    }

    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        let magnitude = (u32::from(bits) & 0x7fff) << 13;
        let sign = (u32::from(bits) & 0x8000) << 16;
        let field = magnitude & (0x1f << 23);
        let normal = magnitude.wrapping_add(112 << 23);
        // A subnormal gets an implicit one and loses it again, which normalises it exactly.
        let subnormal =
            f32::from_bits(magnitude.wrapping_add(113 << 23)) - f32::from_bits(113 << 23);
        let special = magnitude.wrapping_add(224 << 23);
        let wide = if field == 0 { subnormal.to_bits() } else { normal };
        f32::from_bits(sign | if field == 0x1f << 23 { special } else { wide })
    }
}

/// Runs an expression with a type parameter standing for a dtype.
macro_rules! with_format {
    ($dtype:expr, $format:ident => $body:expr) => {
        match $dtype {
            $crate::contract::Dtype::Bf16 => {
                type $format = $crate::contract::dtype::Bf16;
                $body
            }
            $crate::contract::Dtype::F16 => {
                type $format = $crate::contract::dtype::F16;
                $body
            }
        }
    };
}
pub(crate) use with_format;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 16-bit pattern widens as the `half` crate widens it, and rounds back to itself.
    #[test]
    fn widening_is_exact_and_rounding_undoes_it() {
        for bits in 0..=u16::MAX {
            let (f, b) = (half::f16::from_bits(bits), half::bf16::from_bits(bits));
            for (dtype, nan, wide) in
                [(Dtype::F16, f.is_nan(), f.to_f32()), (Dtype::Bf16, b.is_nan(), b.to_f32())]
            {
                let x = dtype.widen(bits);
                if nan {
                    assert!(x.is_nan(), "{dtype:?} {bits:04x}");
                    assert_eq!(dtype.round(x), 0x7fff, "{dtype:?} {bits:04x}");
                } else {
                    assert_eq!(x.to_bits(), wide.to_bits(), "{dtype:?} {bits:04x}");
                    assert_eq!(dtype.round(x), bits, "{dtype:?} {bits:04x}");
                }
            }
        }
    }

    /// Rounding equals the `half` crate's on every 1021st f32 and around every rounding boundary of f16.
    #[test]
    fn rounding_is_to_nearest_even() {
        let check = |bits: u32| {
            let x = f32::from_bits(bits);
            if x.is_nan() {
                assert_eq!((Dtype::F16.round(x), Dtype::Bf16.round(x)), (0x7fff, 0x7fff));
            } else {
                assert_eq!(Dtype::F16.round(x), half::f16::from_f32(x).to_bits(), "{bits:08x}");
                assert_eq!(Dtype::Bf16.round(x), half::bf16::from_f32(x).to_bits(), "{bits:08x}");
            }
        };
        (0..=u32::MAX).step_by(1021).for_each(check);
        for bits in 0..0x7c00_u16 {
            // The midpoint to the next value, and its neighbours.
            let mid = (Dtype::F16.widen(bits) + Dtype::F16.widen(bits + 1).min(65536.0)) / 2.0;
            for d in [u32::MAX, 0, 1] {
                check(mid.to_bits().wrapping_add(d));
                check(mid.to_bits().wrapping_add(d) | 0x8000_0000);
            }
        }
    }
}
