//! Exact comparison of numbers as JSON writes them, without conversion to floats.

use std::cmp::Ordering;

/// A number taken apart. Two spellings of one number, such as `1.0` and `10e-1`, compare as equal.
#[derive(Debug, Clone, Copy)]
struct Decimal<'a> {
    /// -1, 0 or 1.
    sign: i8,
    /// Power of ten of the first digit that is not zero.
    magnitude: i128,
    /// The digits before and after the point, from the first one that is not zero on.
    digits: (&'a [u8], &'a [u8]),
}

/// Compares two numbers of RFC 8259 by value. Exponents beyond 38 digits count as equally large.
pub(super) fn compare(left: &[u8], right: &[u8]) -> Ordering {
    if left == right {
        return Ordering::Equal;
    }
    let (left, right) = (Decimal::new(left), Decimal::new(right));
    left.sign.cmp(&right.sign).then_with(|| {
        let larger = left.magnitude.cmp(&right.magnitude).then_with(|| left.compare_digits(right));
        if left.sign < 0 { larger.reverse() } else { larger }
    })
}

impl<'a> Decimal<'a> {
    fn new(text: &'a [u8]) -> Self {
        let (is_negative, text) = match text.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let end = text.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(text.len());
        let exponent = text.get(end + 1..).map_or(0, parse_exponent);
        let point = text[..end].iter().position(|&byte| byte == b'.').unwrap_or(end);
        let (whole, fraction) = (&text[..point], text[..end].get(point + 1..).unwrap_or_default());
        let is_significant = |byte: &u8| *byte != b'0';
        if let Some(at) = whole.iter().position(is_significant) {
            let magnitude = exponent.saturating_add((point - at) as i128);
            return Self::with_sign(is_negative, magnitude, (&whole[at..], fraction));
        }
        match fraction.iter().position(is_significant) {
            Some(at) => {
                let magnitude = exponent.saturating_sub(at as i128);
                Self::with_sign(is_negative, magnitude, (&[], &fraction[at..]))
            }
            None => Self { sign: 0, magnitude: 0, digits: (&[], &[]) },
        }
    }

    fn with_sign(is_negative: bool, magnitude: i128, digits: (&'a [u8], &'a [u8])) -> Self {
        Self { sign: if is_negative { -1 } else { 1 }, magnitude, digits }
    }

    fn compare_digits(self, other: Self) -> Ordering {
        let digits = |number: Self| number.digits.0.iter().chain(number.digits.1).copied();
        let (mut left, mut right) = (digits(self), digits(other));
        loop {
            let (left, right) = (left.next(), right.next());
            if left.is_none() && right.is_none() {
                return Ordering::Equal;
            }
            match left.unwrap_or(b'0').cmp(&right.unwrap_or(b'0')) {
                Ordering::Equal => {}
                different => return different,
            }
        }
    }
}

fn parse_exponent(text: &[u8]) -> i128 {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    digits.iter().fold(0_i128, |value, digit| {
        value.saturating_mul(10).saturating_add(sign * i128::from(digit.wrapping_sub(b'0')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference: both numbers as integers of many digits, written out with a common exponent.
    fn naive(left: &str, right: &str) -> Ordering {
        let parts = |text: &str| {
            let (is_negative, text) = (text.starts_with('-'), text.trim_start_matches('-').to_lowercase());
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
            let exponent: i64 = exponent.parse().unwrap();
            (is_negative, format!("{whole}{fraction}"), exponent - fraction.len() as i64)
        };
        let (left, right) = (parts(left), parts(right));
        let lowest = left.2.min(right.2);
        let write = |(is_negative, digits, exponent): (bool, String, i64)| {
            let digits = digits + &"0".repeat((exponent - lowest) as usize);
            let digits = digits.trim_start_matches('0').to_owned();
            (is_negative && !digits.is_empty(), digits)
        };
        let (left, right) = (write(left), write(right));
        let magnitude = |digits: &str| (digits.len(), digits.to_owned());
        match (left.0, right.0) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => magnitude(&left.1).cmp(&magnitude(&right.1)),
            (true, true) => magnitude(&right.1).cmp(&magnitude(&left.1)),
        }
    }

    #[test]
    fn numbers_compare_exactly() {
        for (left, right, expected) in [
            ("1", "1.0", Ordering::Equal),
            ("-0", "0e9", Ordering::Equal),
            ("0.10", "1e-1", Ordering::Equal),
            ("9007199254740993", "9007199254740992", Ordering::Greater),
            ("1e400", "1e399", Ordering::Greater),
            ("-1e400", "-1e399", Ordering::Less),
            ("1e99999999999999999999", "1e99999999999999999998", Ordering::Greater),
            ("0.1", "0.1000000000000000055511151231257827", Ordering::Less),
            ("12", "1.2e1", Ordering::Equal),
            ("-2", "1", Ordering::Less),
        ] {
            assert_eq!(compare(left.as_bytes(), right.as_bytes()), expected, "{left} {right}");
            assert_eq!(compare(right.as_bytes(), left.as_bytes()), expected.reverse(), "{right} {left}");
        }
        let long = "9".repeat(60);
        for exponent in [format!("1e{long}"), format!("1e-{long}"), "1e".to_owned(), String::new()] {
            let _ = compare(exponent.as_bytes(), b"1");
        }
    }

    proptest! {
        #[test]
        fn matches_written_out_digits(
            left in "-?(0|[1-9][0-9]{0,4})([.][0-9]{1,4})?([eE][-+]?[0-9]{1,2})?",
            right in "-?(0|[1-9][0-9]{0,4})([.][0-9]{1,4})?([eE][-+]?[0-9]{1,2})?",
        ) {
            prop_assert_eq!(compare(left.as_bytes(), right.as_bytes()), naive(&left, &right));
        }
    }
}
