//! What a number needs: which types of SQL hold it exactly.

/// Significant digits that a double always keeps.
const DOUBLE_DIGITS: usize = 15;

/// Digits that `BIGINT`, and `HUGEINT` or `DECIMAL`, always have room for.
const BIGINT_DIGITS: u32 = 18;
const DECIMAL_DIGITS: u32 = 38;

/// Exponents up to this size, added to 15 digits, are in the range of a double.
const SAFE_EXPONENT: u32 = 280;

/// Bounds of a set of numbers. Two sets merge into one with the larger bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Whether any has a fraction or an exponent. Python reads such a number as a float.
    has_floats: bool,
    /// Whether any is an integer beyond 64 bits.
    beyond_bigint: bool,
    /// Whether a double changes any of them.
    beyond_double: bool,
    /// Whether a double changes any of those with a fraction or exponent.
    has_long_floats: bool,
    /// Whether any has an exponent, which DuckDB does not always read into a `DECIMAL`.
    has_exponents: bool,
    /// Most digits before the point, and after it.
    whole: u32,
    scale: u32,
}

impl Numbers {
    /// Adds a number that is written as in JSON.
    pub(super) fn add(&mut self, text: &[u8]) {
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == digits.len() {
            self.add_integer(text, count);
        } else {
            self.add_float(text, digits, count);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.has_floats |= other.has_floats;
        self.beyond_bigint |= other.beyond_bigint;
        self.beyond_double |= other.beyond_double;
        self.has_long_floats |= other.has_long_floats;
        self.has_exponents |= other.has_exponents;
        self.whole = self.whole.max(other.whole);
        self.scale = self.scale.max(other.scale);
    }

    /// Returns the type that holds all of them exactly; `None` if there is no such type.
    ///
    /// A double holds a number if, written with as many digits or with as few as it needs, it is that number again. So
    /// it holds 0.1, as in Python, but not 0.12345678901234567890.
    pub(super) fn sql_type(self) -> Option<String> {
        let digits = self.whole.saturating_add(self.scale);
        if !self.has_floats && !self.beyond_bigint {
            Some("BIGINT".to_owned())
        } else if self.has_floats && !self.beyond_double {
            Some("DOUBLE".to_owned())
        } else if !self.has_floats && self.whole <= DECIMAL_DIGITS {
            Some("HUGEINT".to_owned())
        } else if self.has_floats && !self.has_exponents && digits <= DECIMAL_DIGITS {
            Some(format!("DECIMAL({},{})", digits.max(1), self.scale))
        } else {
            None
        }
    }

    /// Whether DuckDB's JSON reader, which reads each float as a double, would change any of them.
    pub(super) fn has_long_floats(self) -> bool {
        self.has_long_floats
    }

    fn add_integer(&mut self, text: &[u8], count: usize) {
        let count_u32 = u32::try_from(count).unwrap_or(u32::MAX);
        self.whole = self.whole.max(count_u32);
        if count <= DOUBLE_DIGITS {
            return;
        }
        if count_u32 > BIGINT_DIGITS {
            self.beyond_bigint |= parse::<i64>(text).is_none();
        }
        // The largest value rounds up to a double that the conversion back makes the largest value again.
        self.beyond_double |=
            !parse::<i128>(text).is_some_and(|value| value != i128::MAX && value as f64 as i128 == value);
    }

    fn add_float(&mut self, text: &[u8], digits: &[u8], count: usize) {
        self.has_floats = true;
        let (mantissa, exponent) = match digits.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (&digits[..at], parse_exponent(&digits[at + 1..])),
            None => (digits, 0),
        };
        let fraction = mantissa.len().saturating_sub(count + 1);
        self.has_exponents |= mantissa.len() < digits.len();
        self.whole = self.whole.max(u32::try_from(count).unwrap_or(u32::MAX));
        self.scale = self.scale.max(u32::try_from(fraction).unwrap_or(u32::MAX));
        let is_short =
            count + fraction <= DOUBLE_DIGITS && exponent.unsigned_abs() <= u64::from(SAFE_EXPONENT);
        if !is_short && !is_double(text, mantissa, exponent) {
            self.beyond_double = true;
            self.has_long_floats = true;
        }
    }
}

fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads an exponent. One that is too large for 32 bits becomes the largest or smallest.
fn parse_exponent(text: &[u8]) -> i64 {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] | digits => (1, digits),
    };
    let add = |sum: i64, byte: &u8| (sum * 10 + i64::from(byte.wrapping_sub(b'0'))).min(i64::from(i32::MAX));
    sign * digits.iter().fold(0, add)
}

/// Whether a double, written with as many digits as the number, is that number.
fn is_double(text: &[u8], mantissa: &[u8], exponent: i64) -> bool {
    let Some(value) = parse::<f64>(text) else { return false };
    // The number is 0.d1d2d3… × 10^scale, without leading and trailing zeros.
    let whole = mantissa.iter().take_while(|&&byte| byte != b'.').count();
    let digits: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
    let leading = digits.iter().take_while(|&&digit| digit == b'0').count();
    let digits = &digits[leading..];
    let digits = &digits[..digits.len() - digits.iter().rev().take_while(|&&digit| digit == b'0').count()];
    let Some(scale) =
        i64::try_from(whole).ok().zip(i64::try_from(leading).ok()).map(|(whole, leading)| whole - leading)
    else {
        return false;
    };
    if digits.is_empty() {
        return true;
    }
    // A double has at most 767 significant digits.
    if digits.len() > 800 || !value.is_finite() || value == 0.0 {
        return false;
    }
    let is_number = |written: String| {
        let Some((written, power)) = written.split_once('e') else { return false };
        written.bytes().filter(u8::is_ascii_digit).eq(digits.iter().copied())
            && parse::<i64>(power.as_bytes()) == exponent.checked_add(scale - 1)
    };
    let value = value.abs();
    // The shortest digits of a double that is half-way between two numbers may be those of the other one.
    is_number(format!("{:.*e}", digits.len() - 1, value)) || is_number(format!("{value:e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sql_type(numbers: &[&str]) -> Option<String> {
        let mut all = Numbers::default();
        for number in numbers {
            all.add(number.as_bytes());
        }
        all.sql_type()
    }

    #[test]
    fn the_type_holds_every_number() {
        for (numbers, expected) in [
            (&["0", "-0", "12"][..], Some("BIGINT")),
            (&["9223372036854775807", "-9223372036854775808"], Some("BIGINT")),
            (&["9223372036854775808"], Some("HUGEINT")),
            (&["99999999999999999999999999999999999999", "1"], Some("HUGEINT")),
            (&["100000000000000000000000000000000000000"], None),
            (&["1", "0.5", "1e3", "-0.0", "1E-3"], Some("DOUBLE")),
            (&["0.1", "9007199254740992"], Some("DOUBLE")),
            (&["0.1", "9007199254740993"], Some("DECIMAL(17,1)")),
            (&["0.5", "170141183460469231731687303715884105727"], None),
            (&["0.5", "-170141183460469231731687303715884105728"], Some("DOUBLE")),
            (&["0.12345678901234567890"], Some("DECIMAL(21,20)")),
            (&["1234567890123456.78", "0.125"], Some("DECIMAL(19,3)")),
            // A double that was printed with seventeen digits.
            (&["-65.613616999999977"], Some("DOUBLE")),
            // The double is …081.25, and both …081.2 and …081.3 are as near.
            (&["-1583752478223081.3", "-1583752478223081.2"], Some("DOUBLE")),
            (&["0.1000000000000000055511151231257827021181583404541015625"], Some("DOUBLE")),
            (&["1e400"], None),
            (&["1e-400"], None),
            (&["0e999999999999", "0.0"], Some("DOUBLE")),
            (&["1e2", "0.12345678901234567890"], None),
            (&["5e-324", "1.7976931348623157e308"], Some("DOUBLE")),
            (&["123456789012345678901234567890.5", "0.1234567890123"], None),
        ] {
            assert_eq!(sql_type(numbers).as_deref(), expected, "{numbers:?}");
        }
    }

    proptest! {
        #[test]
        fn a_double_is_held_however_it_is_printed(value in any::<f64>().prop_filter("finite", |v| v.is_finite()), digits in 16..20_usize) {
            let shortest = format!("{value:e}");
            let longer = format!("{value:.digits$e}");
            for text in [shortest, longer] {
                let mut numbers = Numbers::default();
                numbers.add(text.as_bytes());
                prop_assert!(!numbers.beyond_double, "{}", text);
            }
        }

        #[test]
        fn integers_are_classified_by_their_value(value in any::<i128>(), shift in 0..127_u32) {
            let value = value >> shift;
            let mut numbers = Numbers::default();
            numbers.add(value.to_string().as_bytes());
            prop_assert_eq!(numbers.beyond_bigint, i64::try_from(value).is_err());
            prop_assert_eq!(numbers.beyond_double, value == i128::MAX || value as f64 as i128 != value);
        }

        #[test]
        fn short_decimals_are_doubles(whole in 0..100_000_000_u64, fraction in "[0-9]{1,7}", exponent in -250..250_i32) {
            let text = format!("-{whole}.{fraction}e{exponent}");
            let mut numbers = Numbers::default();
            numbers.add(text.as_bytes());
            prop_assert!(!numbers.beyond_double);
        }
    }
}
