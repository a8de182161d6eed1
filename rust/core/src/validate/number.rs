//! Numbers and literals over one block.

use crate::scan::{Block, WIDTH};

/// What a block needs to know of the scalar that the last one ended in: each is 1 if that is what its last
/// byte was, else 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scalars {
    scalar: u64,
    digit: u64,
    /// A zero that a number starts with.
    zero: u64,
    /// A minus that a number starts with.
    minus: u64,
    sign: u64,
    exponent_sign: u64,
    dot: u64,
    exponent: u64,
    /// A digit behind the dot; behind the exponent.
    fraction_digit: u64,
    exponent_digit: u64,
    /// What is still to come of a literal, possibly nothing: then it must end.
    literal: Option<&'static [u8]>,
    /// Whether any of the above but `scalar`, `digit` and `zero` is set.
    is_complex: bool,
}

pub(super) struct Runs {
    /// Where scalars start.
    pub(super) starts: u64,
    /// The bytes right behind them.
    pub(super) behind: u64,
    pub(super) needs_check: bool,
}

impl Scalars {
    /// Where the scalars of a block are; `scalar` are all bytes of them.
    #[inline(always)]
    pub(super) fn begin(&mut self, scalar: u64) -> Runs {
        let behind = scalar << 1 | self.scalar;
        let needs_check = scalar | self.scalar != 0;
        self.scalar = scalar >> 63;
        Runs { starts: scalar & !behind, behind: behind & !scalar, needs_check }
    }

    /// Bytes that cannot be right.
    #[inline(always)]
    pub(super) fn check<B: Block>(&mut self, bytes: &[u8; WIDTH], block: B, scalar: u64, starts: u64) -> u64 {
        let digits = block.within(b'0', b'9') & scalar;
        if digits == scalar && !self.is_complex {
            let zeros = block.eq(b'0') & starts;
            let bad = (zeros << 1 | self.zero) & digits;
            self.zero = zeros >> 63;
            self.digit = digits >> 63;
            return bad;
        }
        self.check_complex(bytes, block, scalar, starts, digits)
    }

    #[inline(always)]
    fn check_complex<B: Block>(
        &mut self,
        bytes: &[u8; WIDTH],
        block: B,
        scalar: u64,
        starts: u64,
        digits: u64,
    ) -> u64 {
        let words = starts & (block.eq(b't') | block.eq(b'f') | block.eq(b'n'));
        let mut bad = 0;
        let mut number = scalar;
        if words != 0 || self.literal.is_some() {
            let (literals, wrong) = self.literals(bytes, scalar, words);
            number &= !literals;
            bad = wrong;
        }
        let starts = starts & number;
        let digits = digits & number;
        let minus = block.eq(b'-') & number;
        let plus = block.eq(b'+') & number;
        let dot = block.eq(b'.') & number;
        let exponent = block.fold().eq(b'e') & number;
        let sign = minus | plus;

        let after_digit = digits << 1 | self.digit;
        let after_sign = sign << 1 | self.sign;
        let after_dot = dot << 1 | self.dot;
        let after_exponent = exponent << 1 | self.exponent;
        bad |= number & !(digits | sign | dot | exponent);
        bad |= (after_sign | after_dot) & !digits;
        bad |= after_exponent & !(digits | sign);
        bad |= (dot | exponent) & !after_digit;
        bad |= plus & !after_exponent;
        bad |= minus & !(starts | after_exponent);

        let first_minus = minus & starts;
        let zeros = block.eq(b'0') & (starts | first_minus << 1 | self.minus);
        bad |= (zeros << 1 | self.zero) & digits;

        // Adding a bit to a run of digits carries it to the byte behind: there a second dot is wrong, or
        // behind an exponent's digits a second exponent too.
        let fraction = after_dot | self.fraction_digit;
        let (carried, fraction_digit) = (fraction & digits).overflowing_add(digits);
        bad |= (carried | fraction) & !digits & dot;
        let exponent_sign = sign & after_exponent;
        let power = after_exponent & digits | exponent_sign << 1 | self.exponent_sign | self.exponent_digit;
        let (carried, exponent_digit) = (power & digits).overflowing_add(digits);
        bad |= (carried | power) & !digits & (dot | exponent);

        let last = |mask: u64| mask >> 63;
        *self = Self {
            scalar: self.scalar,
            digit: last(digits),
            zero: last(zeros),
            minus: last(first_minus),
            sign: last(sign),
            exponent_sign: last(exponent_sign),
            dot: last(dot),
            exponent: last(exponent),
            fraction_digit: u64::from(fraction_digit),
            exponent_digit: u64::from(exponent_digit),
            literal: self.literal,
            is_complex: last(sign | dot | exponent) != 0
                || fraction_digit
                || exponent_digit
                || self.literal.is_some(),
        };
        bad
    }

    /// The bytes of literals that are right so far, and those that are not. `words`: where they start.
    #[inline(always)]
    fn literals(&mut self, bytes: &[u8; WIDTH], scalar: u64, mut words: u64) -> (u64, u64) {
        let (mut good, mut bad) = (0, 0);
        if let Some(rest) = self.literal.take() {
            self.literal(bytes, scalar, 0, rest, &mut good, &mut bad);
        }
        while words != 0 {
            let start = words.trailing_zeros() as usize;
            words &= words - 1;
            let word: &'static [u8] = match bytes[start] {
                b't' => b"true",
                b'f' => b"false",
                _ => b"null",
            };
            self.literal(bytes, scalar, start, word, &mut good, &mut bad);
        }
        (good, bad)
    }

    #[inline(always)]
    fn literal(
        &mut self,
        bytes: &[u8; WIDTH],
        scalar: u64,
        start: usize,
        word: &'static [u8],
        good: &mut u64,
        bad: &mut u64,
    ) {
        let here = &bytes[start..];
        let equal = here.iter().zip(word).take_while(|(byte, letter)| byte == letter).count();
        let end = start + equal;
        *good |= ((1 << equal) - 1) << start;
        if end == WIDTH {
            self.literal = Some(&word[equal..]);
        } else if equal < word.len() {
            *bad |= 1 << end;
        } else {
            *bad |= scalar & 1 << end;
        }
    }
}
