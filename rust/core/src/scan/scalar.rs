//! Any machine: eight bytes at a time in a general-purpose register.

use super::{Block, WIDTH};

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

#[derive(Clone, Copy)]
pub(crate) struct Scalar([u64; 8]);

/// Moves the top bits of eight bytes into one byte. `hits` has no other bits.
#[inline(always)]
fn gather(hits: u64) -> u64 {
    (hits >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Scalar {
    #[inline(always)]
    fn mask(self, test: impl Fn(u64) -> u64) -> u64 {
        self.0.iter().rev().fold(0, |mask, &word| mask << 8 | gather(test(word)))
    }
}

#[inline(always)]
pub(super) fn prefix_xor(mut mask: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        mask ^= mask << shift;
    }
    mask
}

pub(super) fn gather_bits(mask: u64, mut at: u64) -> u64 {
    let mut out = 0;
    for n in 0..at.count_ones() {
        out |= (mask >> at.trailing_zeros() & 1) << n;
        at &= at - 1;
    }
    out
}

pub(super) fn select_bits(low: u64, high: u64, order: &[u8; 16]) -> u64 {
    let bits = low & 0xff | (high & 0xff) << 8;
    let mut out = 0;
    for (n, from) in order.iter().enumerate().filter(|(_, from)| **from < 128) {
        out |= (bits >> (from & 15) & 1) << n;
    }
    out
}

pub(super) fn scatter_bits(bits: u64, mut at: u64) -> u64 {
    let mut out = 0;
    for n in 0..at.count_ones() {
        out |= (bits >> n & 1) << at.trailing_zeros();
        at &= at - 1;
    }
    out
}

impl Block for Scalar {
    #[inline(always)]
    fn load(bytes: &[u8; WIDTH]) -> Self {
        Self(std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|j| bytes[i * 8 + j]))))
    }

    #[inline(always)]
    fn fold(self) -> Self {
        Self(self.0.map(|word| word | (LOW * 0x20)))
    }

    #[inline(always)]
    fn eq(self, byte: u8) -> u64 {
        self.mask(|word| {
            let differs = word ^ (LOW * u64::from(byte));
            // A byte's top bit stays clear only if neither it nor its low seven bits were set.
            !(((differs & !HIGH) + !HIGH) | differs) & HIGH
        })
    }

    #[inline(always)]
    fn either(self, a: u8, b: u8) -> u64 {
        self.eq(a) | self.eq(b)
    }

    #[inline(always)]
    fn le(self, byte: u8) -> u64 {
        self.mask(|word| {
            let limit = LOW * u64::from(byte);
            // Without the top bits no byte borrows from its neighbour; where the top bits differ, they
            // decide.
            let low_le = (limit | HIGH).wrapping_sub(word & !HIGH);
            ((limit & !word) | (!(limit ^ word) & low_le)) & HIGH
        })
    }

    #[inline(always)]
    fn has(self, byte: u8) -> bool {
        self.eq(byte) != 0
    }

    #[inline(always)]
    fn has_either(self, a: u8, b: u8) -> bool {
        self.eq(a) | self.eq(b) != 0
    }

    #[inline(always)]
    fn has_pair(self, first: u8, second: u8, before: &[u8; WIDTH]) -> bool {
        Self::load(before).eq(first) & self.eq(second) != 0
    }

    #[inline(always)]
    fn has_le(self, byte: u8) -> bool {
        self.le(byte) != 0
    }

    #[inline(always)]
    fn within(self, low: u8, high: u8) -> u64 {
        self.le(high) & !if low == 0 { 0 } else { self.le(low - 1) }
    }

    #[inline(always)]
    fn bit5(self) -> u64 {
        self.mask(|word| word << 2 & HIGH)
    }

    #[inline(always)]
    fn prefix_xor(mask: u64) -> u64 {
        prefix_xor(mask)
    }

    const HAS_GATHER: bool = false;

    fn gather(mask: u64, at: u64) -> u64 {
        gather_bits(mask, at)
    }

    fn select(low: u64, high: u64, order: &[u8; 16]) -> u64 {
        select_bits(low, high, order)
    }

    fn scatter(bits: u64, at: u64) -> u64 {
        scatter_bits(bits, at)
    }
}
