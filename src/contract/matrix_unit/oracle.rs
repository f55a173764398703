//! The matrix unit in exact integers: what every other path must equal.

use super::super::{Dtype, MatrixUnit};

/// The NaN that the unit returns.
pub const NAN: u32 = 0x7fff_ffff;
const INFINITY: u32 = 0x7f80_0000;

/// A factor or the accumulator: `significand * 2^(exponent - mantissa)`.
enum Number {
    Finite { negative: bool, significand: u64, exponent: i32 },
    Infinite { negative: bool },
    Nan,
}

fn unpack(bits: u32, mantissa: u32, bias: i32) -> Number {
    let field_max = 2 * bias + 1;
    let exponent_bits = field_max.count_ones();
    let negative = bits >> (mantissa + exponent_bits) & 1 == 1;
    let field = (bits >> mantissa) as i32 & field_max;
    let fraction = u64::from(bits & ((1 << mantissa) - 1));
    if field == field_max {
        if fraction == 0 { Number::Infinite { negative } } else { Number::Nan }
    } else if field == 0 {
        // A subnormal counts with the smallest normal exponent, not with its leading bit.
        Number::Finite { negative, significand: fraction, exponent: 1 - bias }
    } else {
        Number::Finite { negative, significand: fraction | 1 << mantissa, exponent: field - bias }
    }
}

fn unpack16(dtype: Dtype, bits: u16) -> Number {
    match dtype {
        Dtype::Bf16 => unpack(u32::from(bits), 7, 127),
        Dtype::F16 => unpack(u32::from(bits), 10, 15),
    }
}

/// A nonzero term: `significand * 2^(exponent - fraction)`.
#[derive(Clone, Copy, Default)]
struct Term {
    negative: bool,
    significand: u64,
    exponent: i32,
    fraction: i32,
}

/// The terms of one step, and what became of the non-finite ones.
struct Terms {
    list: [Term; 17],
    len: usize,
    plus_infinity: bool,
    minus_infinity: bool,
    nan: bool,
}

impl Terms {
    fn add(&mut self, number: Number, fraction: i32) {
        match number {
            Number::Finite { significand: 0, .. } => {}
            Number::Finite { negative, significand, exponent } => {
                self.list[self.len] = Term { negative, significand, exponent, fraction };
                self.len += 1;
            }
            Number::Infinite { negative: true } => self.minus_infinity = true,
            Number::Infinite { negative: false } => self.plus_infinity = true,
            Number::Nan => self.nan = true,
        }
    }
}

fn product(a: Number, b: Number) -> Number {
    use Number::{Finite, Infinite, Nan};
    match (a, b) {
        (Nan, _) | (_, Nan) => Nan,
        (Infinite { .. }, Finite { significand: 0, .. })
        | (Finite { significand: 0, .. }, Infinite { .. }) => Nan,
        (Infinite { negative: x }, Infinite { negative: y } | Finite { negative: y, .. })
        | (Finite { negative: x, .. }, Infinite { negative: y }) => Infinite { negative: x != y },
        (
            Finite { negative: x, significand: s, exponent: e },
            Finite { negative: y, significand: t, exponent: f },
        ) => Finite { negative: x != y, significand: s * t, exponent: e + f },
    }
}

/// One fused step: `c + sum a[i]*b[i]` over `unit.terms` products. `c` and the result are f32 bits.
///
/// # Panics
/// If the operands do not hold `unit.terms` values each, or the unit is wider than 16 terms or 32 fraction
/// bits.
pub fn step(unit: MatrixUnit, dtype: Dtype, c: u32, a: &[u16], b: &[u16]) -> u32 {
    let n = unit.terms as usize;
    assert!(n <= 16 && unit.fraction_bits <= 32, "no such matrix unit: {unit:?}");
    assert!(a.len() == n && b.len() == n, "{} and {} factors for {n} terms", a.len(), b.len());
    let mut terms = Terms {
        list: [Term::default(); 17],
        len: 0,
        plus_infinity: false,
        minus_infinity: false,
        nan: false,
    };
    let mantissa = if dtype == Dtype::F16 { 10 } else { 7 };
    for (&x, &y) in a.iter().zip(b) {
        terms.add(product(unpack16(dtype, x), unpack16(dtype, y)), 2 * mantissa);
    }
    terms.add(unpack(c, 23, 127), 23);
    match (terms.nan, terms.plus_infinity, terms.minus_infinity) {
        (true, _, _) | (_, true, true) => NAN,
        (_, true, _) => INFINITY,
        (_, _, true) => INFINITY | 0x8000_0000,
        _ => sum(&terms.list[..terms.len], unit.fraction_bits as i32),
    }
}

/// Cuts each term to `fraction_bits` below the largest exponent, adds, cuts to f32.
fn sum(terms: &[Term], fraction_bits: i32) -> u32 {
    let Some(top) = terms.iter().map(|t| t.exponent).max() else {
        return 0;
    };
    let unit = top - fraction_bits;
    let mut total = 0_i64;
    for t in terms {
        let shift = t.exponent - t.fraction - unit;
        let magnitude = match shift {
            0.. => t.significand << shift,
            -63..0 => t.significand >> -shift,
            _ => 0,
        } as i64;
        total += if t.negative { -magnitude } else { magnitude };
    }
    to_f32(total, unit)
}

/// `total * 2^unit` cut toward zero to f32; zero and what is cut to zero give +0.
fn to_f32(total: i64, unit: i32) -> u32 {
    let sign = if total < 0 { 0x8000_0000 } else { 0 };
    let magnitude = total.unsigned_abs();
    let width = 64 - magnitude.leading_zeros() as i32;
    let drop = (width - 24).max(-149 - unit).max(0);
    let kept = if drop < 64 { magnitude >> drop } else { 0 };
    if kept == 0 {
        return 0;
    }
    let unit = unit + drop;
    let width = 64 - kept.leading_zeros() as i32;
    let lead = width - 1 + unit;
    if lead > 127 {
        sign | INFINITY
    } else if lead < -126 {
        sign | (kept << (unit + 149)) as u32
    } else {
        sign | (((lead + 127) as u32) << 23) | ((kept << (24 - width)) as u32 & 0x007f_ffff)
    }
}

/// The chain over ascending groups of `unit.terms` products, starting from `c`. Lengths are multiples of 16.
pub fn chain(unit: MatrixUnit, dtype: Dtype, c: u32, a: &[u16], b: &[u16]) -> u32 {
    let terms = unit.terms as usize;
    a.chunks_exact(terms).zip(b.chunks_exact(terms)).fold(c, |c, (a, b)| step(unit, dtype, c, a, b))
}
