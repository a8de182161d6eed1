//! Any x86-64 machine: SSE2 is part of the architecture, so no detection is needed.

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
    _mm_slli_epi16, _mm_sub_epi8,
};

use super::{Block, WIDTH, scalar};

#[derive(Clone, Copy)]
pub(crate) struct Sse2([__m128i; 4]);

impl Sse2 {
    #[inline(always)]
    fn mask(self, test: impl Fn(__m128i) -> __m128i) -> u64 {
        self.0.iter().rev().fold(0, |mask, &lane| {
            // SAFETY: SSE2 is part of x86-64.
            mask << 16 | u64::from(unsafe { _mm_movemask_epi8(test(lane)) }.cast_unsigned())
        })
    }
}

impl Block for Sse2 {
    #[inline(always)]
    fn load(bytes: &[u8; WIDTH]) -> Self {
        let start = bytes.as_ptr().cast::<__m128i>();
        // SAFETY: all four quarters are within the 64 bytes, and the loads need no alignment.
        Self(std::array::from_fn(|i| unsafe { _mm_loadu_si128(start.add(i)) }))
    }

    #[inline(always)]
    fn fold(self) -> Self {
        // SAFETY: SSE2 is part of x86-64.
        Self(self.0.map(|lane| unsafe { _mm_or_si128(lane, _mm_set1_epi8(0x20)) }))
    }

    #[inline(always)]
    fn eq(self, byte: u8) -> u64 {
        // SAFETY: SSE2 is part of x86-64.
        self.mask(|lane| unsafe { _mm_cmpeq_epi8(lane, _mm_set1_epi8(byte.cast_signed())) })
    }

    #[inline(always)]
    fn either(self, a: u8, b: u8) -> u64 {
        self.eq(a) | self.eq(b)
    }

    #[inline(always)]
    fn le(self, byte: u8) -> u64 {
        // SAFETY: SSE2 is part of x86-64.
        self.mask(|lane| unsafe {
            _mm_cmpeq_epi8(_mm_min_epu8(lane, _mm_set1_epi8(byte.cast_signed())), lane)
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
        // SAFETY: SSE2 is part of x86-64.
        let shifted = self.0.map(|lane| unsafe { _mm_sub_epi8(lane, _mm_set1_epi8(low.cast_signed())) });
        Self(shifted).le(high - low)
    }

    #[inline(always)]
    fn bit5(self) -> u64 {
        // SAFETY: SSE2 is part of x86-64. Bits that cross into the next byte never reach its top bit.
        self.mask(|lane| unsafe { _mm_slli_epi16::<2>(lane) })
    }

    #[inline(always)]
    fn prefix_xor(mask: u64) -> u64 {
        scalar::prefix_xor(mask)
    }

    const HAS_GATHER: bool = false;

    fn gather(mask: u64, at: u64) -> u64 {
        scalar::gather_bits(mask, at)
    }

    fn select(low: u64, high: u64, order: &[u8; 16]) -> u64 {
        scalar::select_bits(low, high, order)
    }

    fn scatter(bits: u64, at: u64) -> u64 {
        scalar::scatter_bits(bits, at)
    }
}
