//! Quick check of the numbers and literals of a block.

use super::number::Scalars;
use crate::scan::{Block, WIDTH};

/// Which part of an exponent the last byte is: 1 for that part, else 0.
#[derive(Clone, Copy)]
struct Exponent {
    letter: u64,
    sign: u64,
    digit: u64,
}

impl Exponent {
    #[inline(always)]
    fn any(self) -> u64 {
        self.letter | self.sign | self.digit
    }
}

/// State that a block needs from the scalar that the last block ended in: [`Scalars`] in the form that takes the
/// fewest instructions.
#[derive(Clone, Copy)]
pub(super) struct PackedScalars {
    /// 1 if the last byte belonged to a scalar, else 0; likewise for the roles below.
    scalar: u64,
    digit: u64,
    /// The leading zero of a number.
    zero: u64,
    /// The leading minus of a number.
    minus: u64,
    /// A minus or a point, which a digit must follow.
    lead: u64,
    /// A point, or a digit after one.
    fraction: u64,
    /// The letter of an exponent, its sign, or one of its digits.
    exponent: Exponent,
    /// A literal.
    literal: u64,
    /// Mask of the bytes at the start of the block that belong to the last block's literal. They have been checked.
    literal_rest: u64,
    /// Whether all fields but the first three are 0.
    is_plain: bool,
}

/// A literal as a little-endian integer.
#[derive(Clone, Copy)]
struct Literal {
    text: u64,
    /// The bits of `text` that count.
    bits: u64,
    /// The mask of the literal at the start of a block.
    bytes: u64,
}

/// Indexed by the lowest five bits of the first letter.
static LITERALS: [Literal; 32] = {
    let mut table = [Literal { text: 0, bits: 0, bytes: 0 }; 32];
    table[b't' as usize & 31] = literal(*b"true\0\0\0\0");
    table[b'f' as usize & 31] = literal(*b"false\0\0\0");
    table[b'n' as usize & 31] = literal(*b"null\0\0\0\0");
    table
};

const fn literal(padded: [u8; 8]) -> Literal {
    let text = u64::from_le_bytes(padded);
    let len = 8 - text.leading_zeros() / 8;
    Literal { text, bits: !(!0 << (8 * len)), bytes: !(!0 << len) }
}

/// Literals of a block, and the bytes of the next block that belong to the last one.
#[derive(Clone, Copy)]
struct Found {
    here: u64,
    rest: u64,
}

/// A block and the bytes of the next that a literal at its end may continue in.
pub(super) type Window = [u8; WIDTH + LITERAL_BYTES];

/// Bytes that are read for a literal.
pub(super) const LITERAL_BYTES: usize = 8;

/// Returns the mask of the literal that starts at the bit `start` of a block, if there is one.
#[inline(always)]
fn literal_at(start: u64, window: &Window) -> Found {
    let at = start.trailing_zeros() as usize % WIDTH;
    let Some(text) = window[at..].first_chunk() else { return Found { here: 0, rest: 0 } };
    let text = u64::from_le_bytes(*text);
    let Literal { text: expected, bits, bytes } = LITERALS[text as usize & 31];
    // Multiplying by the bit shifts the mask to it; without a literal the product is 0.
    let is_literal = u64::from((text ^ expected) & bits == 0);
    let moved = u128::from(bytes) * u128::from(start * is_literal);
    Found { here: moved as u64, rest: (moved >> 64) as u64 }
}

/// Shifts a mask up by one, and inserts the carried bit.
#[inline(always)]
fn after(mask: u64, carried: u64) -> u64 {
    mask.wrapping_mul(2).wrapping_add(carried)
}

impl PackedScalars {
    /// Returns the state before the next block; `None` inside a literal, the rest of which has to be checked.
    #[inline(always)]
    pub(super) fn resume(scalars: Scalars) -> Option<Self> {
        if scalars.is_literal() {
            return None;
        }
        let exponent = scalars.carried_exponent();
        Some(Self {
            scalar: scalars.carried_scalar(),
            digit: scalars.carried_digit(),
            zero: scalars.carried_zero(),
            minus: scalars.carried_minus(),
            lead: scalars.carried_minus() | scalars.carried_dot(),
            fraction: scalars.carried_fraction(),
            exponent: Exponent { letter: exponent & 1, sign: exponent >> 1 & 1, digit: exponent >> 2 },
            literal: 0,
            literal_rest: 0,
            is_plain: scalars.is_plain(),
        })
    }

    /// Returns 1 if the last byte belonged to a scalar, else 0.
    #[inline(always)]
    pub(super) fn is_open(&self) -> u64 {
        self.scalar
    }

    /// Returns the state before `next`, the bytes of the next block.
    #[inline(always)]
    pub(super) fn suspend(self, next: &[u8]) -> Scalars {
        if self.literal == 1 {
            return Scalars::in_literal(self.literal_rest.count_ones() as usize, next);
        }
        let dot = self.lead & !self.minus;
        let exponent = self.exponent.letter | self.exponent.sign << 1 | self.exponent.digit << 2;
        Scalars::new(self.scalar, self.zero, self.minus, dot, self.fraction & !dot, exponent)
    }

    /// Checks a block whose first `unused` bytes are padding, which must be white space.
    #[inline(always)]
    pub(super) fn check_end<B: Block>(&mut self, window: &Window, unused: usize) -> u64 {
        // The carried state applies to the first used byte.
        let rest = self.literal_rest >> (WIDTH - unused);
        let Self { scalar, digit, zero, minus, lead, fraction, exponent, literal, literal_rest, .. } = self;
        let Exponent { letter, sign, digit: power } = exponent;
        for field in [scalar, digit, zero, minus, lead, fraction, letter, sign, power, literal, literal_rest]
        {
            *field <<= unused;
        }
        let bad = self.check::<B>(window);
        self.literal_rest |= rest;
        self.is_plain &= rest == 0;
        bad
    }

    /// Checks a block of scalars, with one byte after each, and changes the state to that of the next. Returns a mask
    /// that is not 0 if a rule is broken.
    #[inline(always)]
    pub(super) fn check<B: Block>(&mut self, window: &Window) -> u64 {
        let Some(block) = window.first_chunk().map(B::load) else { return !0 };
        let ends =
            block.fold().either(b'{', b'}') | block.either(b',', b':') | block.eq(b'"') | block.le(b' ');
        let scalar = !ends;
        let after_scalar = after(scalar, self.scalar);
        let starts = scalar & !after_scalar;
        let digits = block.within(b'0', b'9');
        // Numbers are often all of one form, so these branches can be predicted.
        if digits == scalar && self.is_plain {
            let zeros = block.eq(b'0') & starts;
            let bad = after(zeros, self.zero) & digits;
            (self.scalar, self.digit, self.zero) = (digits >> 63, digits >> 63, zeros >> 63);
            return bad;
        }
        let mut minus = block.eq(b'-');
        let dot = block.eq(b'.');
        let after_digit = after(digits, self.digit);
        let others = scalar & !(digits | minus | dot);

        let mut literals = Found { here: 0, rest: 0 };
        let mut words = starts & others;
        while words != 0 {
            let found = literal_at(words & words.wrapping_neg(), window);
            literals = Found { here: literals.here | found.here, rest: found.rest };
            words &= words - 1;
        }
        let literal = literals.here | self.literal_rest;
        let mut bad = after(literal, self.literal) & !literal & scalar;
        let others = others & !literal;
        let mut exponent = Exponent { letter: 0, sign: 0, digit: 0 };
        if others | self.exponent.any() != 0 {
            let numbers = Numbers { scalar: scalar & !literal, digits, minus, dot, after_digit };
            let found = numbers.check_exponents(block, self.exponent);
            bad |= found.bad;
            exponent = found.after;
            // Without the signs of exponents, the rest is as for other numbers.
            minus &= !found.signs;
        }

        let leads = minus | dot;
        let zeros = block.eq(b'0') & (starts | after(minus, self.minus));
        // Adding a bit to a run of digits carries it to the byte after the run, where a second point is wrong.
        let fraction = after(dot, self.fraction);
        let (carried, is_fraction) = (fraction & digits).overflowing_add(digits);
        bad |= after(leads, self.lead) & !digits
            | dot & !after_digit
            | minus & after_scalar
            | after(zeros, self.zero) & digits
            | (carried | fraction) & dot;
        *self = Self {
            scalar: scalar >> 63,
            digit: digits >> 63,
            zero: zeros >> 63,
            minus: minus >> 63,
            lead: leads >> 63,
            fraction: dot >> 63 | u64::from(is_fraction),
            exponent,
            literal: literal >> 63,
            literal_rest: literals.rest,
            is_plain: false,
        };
        self.is_plain =
            self.lead | self.fraction | self.exponent.any() | self.literal | self.literal_rest == 0;
        bad
    }
}

/// Masks of the numbers of a block.
struct Numbers {
    scalar: u64,
    digits: u64,
    minus: u64,
    dot: u64,
    after_digit: u64,
}

struct Exponents {
    signs: u64,
    bad: u64,
    after: Exponent,
}

impl Numbers {
    /// Checks exponents; any other byte that belongs to neither numbers nor literals is invalid.
    #[inline(always)]
    fn check_exponents<B: Block>(self, block: B, before: Exponent) -> Exponents {
        let Self { scalar, digits, minus, dot, after_digit } = self;
        let plus = block.eq(b'+') & scalar;
        let exponent = block.fold().eq(b'e') & scalar;
        let after_exponent = after(exponent, before.letter);
        let signs = (minus | plus) & after_exponent;
        let after_sign = after(signs, before.sign);
        let power = after_exponent & digits | after_sign | before.digit;
        let (carried, is_power) = (power & digits).overflowing_add(digits);
        let bad = scalar & !(digits | minus | plus | dot | exponent)
            | exponent & !after_digit
            | after_exponent & !(digits | signs)
            | plus & !signs
            | after_sign & !digits
            | (carried | power) & (dot | exponent);
        let after = Exponent { letter: exponent >> 63, sign: signs >> 63, digit: u64::from(is_power) };
        Exponents { signs, bad, after }
    }
}
