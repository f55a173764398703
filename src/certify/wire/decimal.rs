//! Decimals as a server sent them. Equal means the same number, digit for digit; nothing goes through a float.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest decimal kept, in characters.
const CHARACTERS_MAX: usize = 64;

/// A JSON number as received.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Decimal(String);

/// Sign, digits without zeros at either end, power of ten of the last digit.
#[derive(PartialEq, Eq)]
struct Canonical {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Of a JSON number. `None` for anything else: null, a string, something not finite or without end.
    pub fn parse(text: &str) -> Option<Decimal> {
        let text = text.trim();
        let is_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        if !is_number || text.len() > CHARACTERS_MAX {
            return None;
        }
        let value: f64 = text.parse().ok()?;
        let decimal = Decimal(text.into());
        (value.is_finite() && decimal.canonical().is_some()).then_some(decimal)
    }

    /// As received.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Nearest float: for sizes of differences, never for equality.
    pub fn value(&self) -> f64 {
        self.0.parse().unwrap_or(f64::NAN)
    }

    /// Significant digits, and digits after the point.
    pub fn digits(&self) -> (u32, u32) {
        let Some(canonical) = self.canonical() else { return (0, 0) };
        let decimals = (-canonical.exponent).clamp(0, CHARACTERS_MAX as i64 * 8);
        (canonical.digits.len() as u32, decimals as u32)
    }

    fn canonical(&self) -> Option<Canonical> {
        let (negative, rest) = match self.0.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, self.0.as_str()),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let exponent = i64::from(exponent) - fraction.len() as i64;
        let short = digits.trim_end_matches('0');
        let dropped = (digits.len() - short.len()) as i64;
        let short = short.trim_start_matches('0');
        if short.is_empty() {
            return Some(Canonical { negative: false, digits: String::new(), exponent: 0 });
        }
        Some(Canonical { negative, digits: short.into(), exponent: exponent + dropped })
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Decimal) -> bool {
        self.0 == other.0 || self.canonical() == other.canonical()
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Decimal {
        Decimal::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn equal_numbers_are_equal_however_they_are_written() {
        for (a, b) in [("-1.50", "-1.5"), ("-0.0", "0"), ("15e-1", "1.5"), ("1E2", "100")] {
            assert_eq!(of(a), of(b));
        }
    }

    /// Two decimals that are the same f64, even the same f32, are still two.
    #[test]
    fn a_last_digit_that_no_float_holds_is_a_difference() {
        assert_ne!(of("-1.00000000000000001"), of("-1.00000000000000002"));
        assert_ne!(of("-1.5"), of("1.5"));
    }

    #[test]
    fn what_is_no_finite_number_is_none() {
        for bad in ["null", "NaN", "-Infinity", "inf", "\"1\"", "", "-", "1e999", "1e99999999999"] {
            assert!(Decimal::parse(bad).is_none(), "{bad}");
        }
        assert!(Decimal::parse(&"1".repeat(65)).is_none());
    }

    #[test]
    fn digits_are_counted_without_zeros_at_the_ends() {
        assert_eq!(of("-0.0450").digits(), (2, 3));
        assert_eq!(of("-12.3456").digits(), (6, 4));
        assert_eq!(of("0").digits(), (0, 0));
        assert_eq!(of("-1.2e-7").digits(), (2, 8));
    }
}
