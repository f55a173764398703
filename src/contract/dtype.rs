//! Storage dtypes and the two conversions that the contract names: `r16` and `w`.

use half::{bf16, f16};
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
        if x.is_nan() {
            return 0x7fff;
        }
        match self {
            Dtype::Bf16 => bf16::from_f32(x).to_bits(),
            Dtype::F16 => f16::from_f32(x).to_bits(),
        }
    }

    /// `w`: exact widening, subnormals kept.
    #[inline]
    pub fn widen(self, bits: u16) -> f32 {
        match self {
            Dtype::Bf16 => f32::from_bits((bits as u32) << 16),
            Dtype::F16 => f16::from_bits(bits).to_f32(),
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
