//! Checks the numbers and literals of one block.

use crate::scan::{Block, WIDTH};

/// State that a block needs from the scalar that the last block ended in: a bit for each role that the last
/// byte may have had. It is one word, because it is copied for every block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Scalars(u64);

const SCALAR: u32 = 0;
/// The leading zero of a number.
const ZERO: u32 = 1;
/// From here on, bits that never occur in plain integers.
const COMPLEX: u32 = 2;
/// The leading minus of a number.
const MINUS: u32 = 2;
const DOT: u32 = 3;
const FRACTION_DIGIT: u32 = 4;
/// From here on, bits that only occur in exponents and literals.
const RARE: u32 = 5;
const EXPONENT: u32 = 5;
const EXPONENT_SIGN: u32 = 6;
const EXPONENT_DIGIT: u32 = 7;
/// Three bits: how many bytes of a literal are still missing, plus one; 0 for no literal.
const LITERAL_LEFT: u32 = 8;
/// Two bits: which literal.
const LITERAL: u32 = 11;

const WORDS: [&[u8]; 3] = [b"true", b"false", b"null"];

pub(super) struct Runs {
    /// Mask of the first bytes of scalars.
    pub(super) starts: u64,
    /// Mask of the bytes right after scalars.
    pub(super) after: u64,
}

impl Scalars {
    #[inline(always)]
    pub(super) fn new(
        scalar: u64,
        zero: u64,
        minus: u64,
        dot: u64,
        fraction_digit: u64,
        exponent: u64,
    ) -> Self {
        Self(
            scalar << SCALAR
                | zero << ZERO
                | minus << MINUS
                | dot << DOT
                | fraction_digit << FRACTION_DIGIT
                | exponent << EXPONENT,
        )
    }

    /// Returns the state inside a literal that ends after the first `left` bytes of `next`.
    pub(super) fn in_literal(left: usize, next: &[u8]) -> Self {
        let rest = next.get(..left).unwrap_or_default();
        let which = WORDS.iter().position(|word| word.ends_with(rest)).unwrap_or_default();
        Self(1 << SCALAR | (left as u64 + 1) << LITERAL_LEFT | (which as u64) << LITERAL)
    }

    #[inline(always)]
    pub(super) fn is_literal(self) -> bool {
        self.0 >> LITERAL_LEFT & 7 != 0
    }

    /// Whether the last byte had no role that it cannot have in a plain integer.
    pub(super) fn is_plain(self) -> bool {
        self.0 >> COMPLEX == 0
    }

    #[inline(always)]
    pub(super) fn carried_scalar(self) -> u64 {
        self.carried(SCALAR)
    }

    #[inline(always)]
    pub(super) fn carried_zero(self) -> u64 {
        self.carried(ZERO)
    }

    #[inline(always)]
    pub(super) fn carried_minus(self) -> u64 {
        self.carried(MINUS)
    }

    #[inline(always)]
    pub(super) fn carried_dot(self) -> u64 {
        self.carried(DOT)
    }

    /// Returns 1 if the last byte was a point or a digit after one.
    #[inline(always)]
    pub(super) fn carried_fraction(self) -> u64 {
        self.carried(DOT) | self.carried(FRACTION_DIGIT)
    }

    #[inline(always)]
    pub(super) fn carried_exponent(self) -> u64 {
        self.0 >> EXPONENT & 7
    }

    #[inline(always)]
    fn carried(self, bit: u32) -> u64 {
        self.0 >> bit & 1
    }

    /// Returns where the scalars of a block start and end. `scalar` is the mask of all their bytes.
    #[inline(always)]
    pub(super) fn runs(self, scalar: u64) -> Runs {
        let after = scalar << 1 | self.carried(SCALAR);
        Runs { starts: scalar & !after, after: after & !scalar }
    }

    /// Returns the mask of the invalid bytes, and the state for the next block.
    #[inline(always)]
    pub(super) fn check<B: Block>(
        self,
        bytes: &[u8; WIDTH],
        block: B,
        scalar: u64,
        starts: u64,
    ) -> (u64, Self) {
        if scalar | self.0 == 0 {
            return (0, self);
        }
        let digits = block.within(b'0', b'9') & scalar;
        if digits == scalar && self.0 >> COMPLEX == 0 {
            let zeros = block.eq(b'0') & starts;
            let bad = (zeros << 1 | self.carried(ZERO)) & digits;
            return (bad, Self(scalar >> 63 << SCALAR | zeros >> 63 << ZERO));
        }
        let minus = block.eq(b'-') & scalar;
        let dot = block.eq(b'.') & scalar;
        if scalar == digits | minus | dot && self.0 >> RARE == 0 {
            return self.check_decimal(block, Decimals { number: scalar, starts, digits, minus, dot });
        }
        let mut literals = Literals { bytes, scalar, good: 0, bad: 0, left: 0 };
        literals.check(self, starts & block.within(b'a', b'z'));
        let number = scalar & !literals.good;
        let decimals = Decimals { number, starts: starts & number, digits: digits & number, minus, dot };
        let (bad, after) = if number & !(digits | minus | dot) | self.0 >> EXPONENT & 7 == 0 {
            self.check_decimal(block, decimals)
        } else {
            self.check_exponent(block, decimals)
        };
        (bad | literals.bad, Self(after.0 | scalar >> 63 << SCALAR | literals.left))
    }

    /// Checks numbers without exponents.
    #[inline(always)]
    fn check_decimal<B: Block>(self, block: B, decimals: Decimals) -> (u64, Self) {
        let Decimals { number, starts, digits, minus, dot } = decimals;
        let after_point = (minus | dot) << 1 | self.carried(MINUS) | self.carried(DOT);
        let after_digit = digits << 1 | self.carried_digit();
        let zeros = block.eq(b'0') & (starts | minus << 1 | self.carried(MINUS));
        // Adding a bit to a run of digits carries it to the byte after the run, where a second dot is wrong.
        let fraction = dot << 1 | self.carried(DOT) | self.carried(FRACTION_DIGIT);
        let (carried, fraction_digit) = (fraction & digits).overflowing_add(digits);
        let bad = after_point & !digits
            | dot & !after_digit
            | minus & !starts
            | (zeros << 1 | self.carried(ZERO)) & digits
            | (carried | fraction) & !digits & dot;
        let after = number >> 63 << SCALAR
            | zeros >> 63 << ZERO
            | minus >> 63 << MINUS
            | dot >> 63 << DOT
            | u64::from(fraction_digit) << FRACTION_DIGIT;
        (bad, Self(after))
    }

    /// Checks any numbers; bytes that belong to neither numbers nor literals are invalid.
    #[inline(always)]
    fn check_exponent<B: Block>(self, block: B, decimals: Decimals) -> (u64, Self) {
        let Decimals { number, starts, digits, minus, dot } = decimals;
        let plus = block.eq(b'+') & number;
        let exponent = block.fold().eq(b'e') & number;
        let sign = minus | plus;
        let after_exponent = exponent << 1 | self.carried(EXPONENT);
        let exponent_sign = sign & after_exponent;
        let mut bad = number & !(digits | sign | dot | exponent);
        bad |= exponent & !(digits << 1 | self.carried_digit());
        bad |= after_exponent & !(digits | sign);
        bad |= plus & !after_exponent;
        bad |= (exponent_sign << 1 | self.carried(EXPONENT_SIGN)) & !digits;

        let power = after_exponent & digits
            | exponent_sign << 1
            | self.carried(EXPONENT_SIGN)
            | self.carried(EXPONENT_DIGIT);
        let (carried, exponent_digit) = (power & digits).overflowing_add(digits);
        bad |= (carried | power) & !digits & (dot | exponent);
        // The rest is the same as for decimals, once the signs of exponents are removed.
        let (bad_decimal, after) = self
            .check_decimal(block, Decimals { number, starts, digits, minus: minus & !exponent_sign, dot });
        let after = after.0
            | exponent >> 63 << EXPONENT
            | exponent_sign >> 63 << EXPONENT_SIGN
            | u64::from(exponent_digit) << EXPONENT_DIGIT;
        (bad | bad_decimal, Self(after))
    }

    /// Returns 1 if the last byte was a digit: it was part of a number, and had no other role.
    #[inline(always)]
    pub(super) fn carried_digit(self) -> u64 {
        let other = 1 << MINUS | 1 << DOT | 1 << EXPONENT | 1 << EXPONENT_SIGN | 7 << LITERAL_LEFT;
        self.carried(SCALAR) & u64::from(self.0 & other == 0)
    }
}

/// Masks of the numbers of a block.
#[derive(Clone, Copy)]
struct Decimals {
    number: u64,
    starts: u64,
    digits: u64,
    minus: u64,
    dot: u64,
}

/// The literals of a block.
struct Literals<'a> {
    bytes: &'a [u8; WIDTH],
    scalar: u64,
    /// Bytes that match so far.
    good: u64,
    bad: u64,
    /// State for the next block, as in [`Scalars`].
    left: u64,
}

impl Literals<'_> {
    /// Reads all literals. `words` is the mask of the scalars that start with a letter.
    #[inline(always)]
    fn check(&mut self, before: Scalars, mut words: u64) {
        if let Some(left) = (before.0 >> LITERAL_LEFT & 7).checked_sub(1) {
            let which = before.0 >> LITERAL & 3;
            let word = WORDS[which as usize % WORDS.len()];
            self.check_word(0, which, &word[word.len() - left as usize..]);
        }
        while words != 0 {
            let start = words.trailing_zeros() as usize;
            words &= words - 1;
            let which = match self.bytes[start] {
                b't' => 0,
                b'f' => 1,
                b'n' => 2,
                _ => {
                    self.bad |= 1 << start;
                    continue;
                }
            };
            self.check_word(start, which, WORDS[which as usize]);
        }
    }

    #[inline(always)]
    fn check_word(&mut self, start: usize, which: u64, word: &[u8]) {
        let here = &self.bytes[start..];
        // The usual case, without a loop: the literal ends before the block does.
        if let [a, b, c, d, e, _, ..] = *here
            && (word == [a, b, c, d] && self.scalar >> start & 0x1f == 0xf
                || word == [a, b, c, d, e] && self.scalar >> start & 0x3f == 0x1f)
        {
            self.good |= self.scalar & 0x1f << start;
            return;
        }
        let equal = here.iter().zip(word).take_while(|(byte, letter)| byte == letter).count();
        let end = start + equal;
        self.good |= ((1 << equal) - 1) << start;
        if end == WIDTH {
            // It may end exactly here; then the next byte must not continue it.
            self.left = ((word.len() - equal) as u64 + 1) << LITERAL_LEFT | which << LITERAL;
        } else if equal < word.len() {
            self.bad |= 1 << end;
        } else {
            self.bad |= self.scalar & 1 << end;
        }
    }
}
