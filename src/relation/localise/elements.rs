//! Two rows of f32 against each other: the first element that differs, and how far apart they are.

use serde::Serialize;

/// An f32 in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Value {
    /// Its bits in hex, every NaN as `0x7fffffff`.
    pub bits: String,
    /// The shortest decimal that stands for it; `NaN`, `inf`, `-inf`.
    pub decimal: String,
}

/// How two rows differ. The first of two values, or sides, is always the one that is judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Elements {
    /// First element that differs.
    pub first: usize,
    /// Its values.
    pub values: [Value; 2],
    /// Their distance in ulp; `None` if one is NaN.
    pub ulp: Option<u32>,
    /// Elements that differ.
    pub differing: usize,
    /// Elements of a row.
    pub of: usize,
    /// Largest distance in ulp, of elements that are numbers on both sides; `None` if no differing element is.
    pub ulp_max: Option<u32>,
}

impl Elements {
    /// `None` if the rows are equal bit for bit, NaN being alike.
    pub fn between(a: &[f32], b: &[f32]) -> Option<Elements> {
        let differs = |(_, (a, b)): &(usize, (&f32, &f32))| bits(**a) != bits(**b);
        let differing = || a.iter().zip(b).enumerate().filter(differs);
        let (first, (x, y)) = differing().next()?;
        Some(Elements {
            first,
            values: [x, y]
                .map(|x| Value { bits: format!("0x{:08x}", bits(*x)), decimal: format!("{x:?}") }),
            ulp: ulp(*x, *y),
            differing: differing().count(),
            of: a.len(),
            ulp_max: differing().filter_map(|(_, (a, b))| ulp(*a, *b)).max(),
        })
    }
}

/// The bits that are compared: NaN are alike.
fn bits(x: f32) -> u32 {
    if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }
}

/// How many f32 lie between two, one of them counted: 1 for neighbours. Both zeros are one number, and an infinity is the
/// neighbour of the largest finite one. `None` if either is NaN.
pub fn ulp(a: f32, b: f32) -> Option<u32> {
    let rank = |x: f32| {
        let magnitude = i64::from(x.to_bits() & 0x7fff_ffff);
        if x.is_sign_negative() { -magnitude } else { magnitude }
    };
    let is_number = !a.is_nan() && !b.is_nan();
    is_number
        .then(|| u32::try_from((rank(a) - rank(b)).abs()).expect("two f32 are below 2^32 apart"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_ulp_apart_across_zero_and_up_to_infinity() {
        let tiny = f32::from_bits(1);
        assert_eq!(ulp(1.0, f32::from_bits(1.0_f32.to_bits() + 1)), Some(1));
        assert_eq!(ulp(-1.0, f32::from_bits((-1.0_f32).to_bits() - 3)), Some(3));
        assert_eq!(ulp(0.0, -0.0), Some(0));
        assert_eq!(ulp(tiny, 0.0), Some(1));
        assert_eq!(ulp(tiny, -tiny), Some(2));
        assert_eq!(ulp(f32::MAX, f32::INFINITY), Some(1));
        assert_eq!(ulp(f32::INFINITY, f32::INFINITY), Some(0));
        assert_eq!(ulp(f32::NEG_INFINITY, f32::INFINITY), Some(2 * 0x7f80_0000));
        assert_eq!(ulp(f32::NAN, 1.0), None);
        assert_eq!(ulp(1.0, -f32::NAN), None);
        assert_eq!(ulp(f32::NAN, f32::NAN), None);
    }

    /// Zeros of two signs have other bits, so they differ, by no ulp; NaN of other bits are alike; a NaN and a number differ by
    /// no number of ulp.
    #[test]
    fn rows_are_compared_by_their_bits() {
        let other_nan = f32::from_bits(0xffc0_0001);
        assert_eq!(Elements::between(&[1.0, f32::NAN], &[1.0, other_nan]), None);
        let found = Elements::between(&[1.0, 0.0, 2.0, 3.0], &[1.0, -0.0, f32::NAN, 3.5]).unwrap();
        assert_eq!((found.first, found.differing, found.of), (1, 3, 4));
        assert_eq!(found.values[1].bits, "0x80000000");
        assert_eq!(found.values[1].decimal, "-0.0");
        assert_eq!((found.ulp, found.ulp_max), (Some(0), Some(0x0020_0000)));
        let found = Elements::between(&[f32::INFINITY], &[other_nan]).unwrap();
        let [a, b] = found.values;
        assert_eq!((a.decimal.as_str(), a.bits.as_str()), ("inf", "0x7f800000"));
        assert_eq!((b.decimal.as_str(), b.bits.as_str()), ("NaN", "0x7fffffff"));
        assert_eq!((found.ulp, found.ulp_max), (None, None));
    }
}
