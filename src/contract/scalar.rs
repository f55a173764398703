//! Scalar functions (docs/contract.md sections 7 to 9 and the scale of section 5): polynomials in f32, so that
//! every device gives the same bits.

#![allow(clippy::excessive_precision)]

/// -log2(e), which turns a natural exponent into that of [`exp2`] (section 9).
const MINUS_LOG2_E: f32 = f32::from_bits(0xbfb8_aa3b);
/// log2(e).
pub const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
/// ln(2).
pub const LN_2: f32 = f32::from_bits(0x3f31_7218);

const C5: f32 = f32::from_bits(0x3aad_e2fc);
const C4: f32 = f32::from_bits(0x3c1e_7652);
const C3: f32 = f32::from_bits(0x3d63_5be7);
const C2: f32 = f32::from_bits(0x3e75_fcdd);
const C1: f32 = f32::from_bits(0x3f31_7214);
/// 1.5 * 2^23: adding it leaves an integer in the low mantissa bits.
const ROUNDER: f32 = 12582912.0;

/// `2^x` for `x <= 0` (-infinity included) and small positive `x`; +0 for `x <= -127` and for NaN.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let x = if x > -127.0 { x } else { -127.0 };
    let t = x + ROUNDER;
    let f = x - (t - ROUNDER);
    let p = C5.mul_add(f, C4);
    let p = p.mul_add(f, C3);
    let p = p.mul_add(f, C2);
    let p = p.mul_add(f, C1);
    let p = p.mul_add(f, 1.0);
    f32::from_bits(p.to_bits().wrapping_add(t.to_bits() << 23))
}

/// `log2(x)` for normal `x > 0`.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let e = (x.to_bits() as i32).wrapping_sub(0x3f35_04f3) >> 23;
    let f = f32::from_bits(x.to_bits().wrapping_sub((e << 23) as u32));
    let s = (f - 1.0) / (f + 1.0);
    let z = s * s;
    let q = f32::from_bits(0x3edd_0c73).mul_add(z, f32::from_bits(0x3f13_a38e));
    let q = q.mul_add(z, f32::from_bits(0x3f76_3873));
    let q = q.mul_add(z, f32::from_bits(0x4038_aa3b));
    s.mul_add(q, e as f32)
}

/// `g * sigmoid(g)`.
#[inline(always)]
pub fn silu(g: f32) -> f32 {
    let e = exp2(g.abs() * MINUS_LOG2_E);
    let sigmoid = (if g >= 0.0 { 1.0 } else { e }) / (1.0 + e);
    g * sigmoid
}

/// The softmax scale folded into q: `f32(log2(e) / sqrt(head_dim))`.
pub fn score_scale(head_dim: usize) -> f32 {
    (std::f64::consts::LOG2_E / (head_dim as f64).sqrt()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::simd::{Kernel, Simd};

    /// Known answers of docs/contract.md section 7.
    #[test]
    fn exp2_gives_the_known_answers() {
        let table = [
            (0xbe99_999a, 0x3f4f_efc5),
            (0xbfc0_0000, 0x3eb5_04f2),
            (0xc124_0000, 0x3a57_44fc),
            (0xc2c9_6666, 0x0d1d_9639),
            (0xc2fc_0000, 0x0080_0000),
            (0xc2fc_999a, 0x004f_efa8),
            (0xc2fe_0000, 0x0000_0000),
            (0x0000_0000, 0x3f80_0000),
            (0x8000_0000, 0x3f80_0000),
            (0xff80_0000, 0x0000_0000),
        ];
        for (x, y) in table {
            assert_eq!(exp2(f32::from_bits(x)).to_bits(), y, "{x:08x}");
        }
    }

    struct Sweep<'a>(&'a mut [f32]);

    impl Kernel for Sweep<'_> {
        type Out = ();
        #[inline(always)]
        fn run(self) {
            for x in self.0 {
                *x = exp2(*x);
            }
        }
    }

    /// Every 61st f32 of [-128, -2^-29], in blocks, on every path; and an error bound against f64.
    #[test]
    fn exp2_is_the_same_on_every_path_and_close_to_two_to_the_x() {
        let (first, last) = (0xb100_0000_u32, 0xc300_0000_u32);
        let mut worst = 0.0_f64;
        let mut block = Vec::new();
        let mut bits = first;
        while bits <= last {
            block.clear();
            while bits <= last && block.len() < 4096 {
                block.push(f32::from_bits(bits));
                bits += 61;
            }
            for simd in Simd::all() {
                let mut y = block.clone();
                simd.run(Sweep(&mut y));
                for (&x, &y) in block.iter().zip(&y) {
                    assert_eq!(y.to_bits(), exp2(x).to_bits(), "{x} on {simd:?}");
                }
            }
            for &x in block.iter().filter(|x| **x >= -126.0) {
                let exact = f64::from(x).exp2();
                worst = worst.max((f64::from(exp2(x)) - exact).abs() / exact);
            }
        }
        assert!(worst <= (-22.57_f64).exp2(), "relative error 2^{}", worst.log2());
    }

    /// Known answers of sections 8 and 9, and the error bound of section 8 on [1, 2^19).
    #[test]
    fn log2_and_silu_give_the_known_answers() {
        assert_eq!(log2(3.0).to_bits(), 0x3fca_e00d);
        assert_eq!(log2(128256.0).to_bits(), 0x4187_bfd4);
        for (g, y) in
            [(1.5, 0x3f9c_f96b), (-1.5, 0xbe8c_1a51), (-20.0, 0xb331_0d3d), (88.0, 0x42b0_0000)]
        {
            assert_eq!(silu(g).to_bits(), y, "{g}");
        }
        for bits in (1.0_f32.to_bits()..524288.0_f32.to_bits()).step_by(509) {
            let x = f32::from_bits(bits);
            let error = (f64::from(log2(x)) - f64::from(x).log2()).abs();
            assert!(error < (-19.9_f64).exp2(), "{x}: {error}");
        }
    }

    #[test]
    fn the_score_scale_is_the_contracts() {
        assert_eq!(score_scale(64).to_bits(), 0x3e38_aa3b);
        assert_eq!(score_scale(128).to_bits(), 0x3e02_93ee);
    }
}
