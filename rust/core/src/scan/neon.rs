//! Any aarch64 machine: NEON is part of the architecture, so no detection is needed.
//!
//! NEON has no instruction that turns a comparison into a bit mask. Five instructions do it if the vectors were loaded
//! interleaved.

use std::arch::aarch64::{
    uint8x16_t, uint8x16x4_t, vceqq_u8, vcleq_u8, vdupq_n_u8, vget_lane_u64, vgetq_lane_u64, vld4q_u8,
    vminq_u8, vorrq_u8, vpmaxq_u8, vreinterpret_u64_u8, vreinterpretq_u16_u8, vreinterpretq_u64_u8,
    vshrn_n_u16, vsubq_u8, vtstq_u8,
};
use std::arch::asm;

use super::{Block, WIDTH, scalar};

/// Byte i of the block is in vector i modulo 4.
#[derive(Clone, Copy)]
pub(crate) struct Neon([uint8x16_t; 4]);

impl Neon {
    #[inline(always)]
    fn map(self, change: impl Fn(uint8x16_t) -> uint8x16_t) -> Self {
        Self(self.0.map(change))
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> Self {
        // SAFETY: NEON is part of aarch64.
        self.map(|lane| unsafe { vceqq_u8(lane, vdupq_n_u8(byte)) })
    }

    #[inline(always)]
    fn equal_either(self, a: u8, b: u8) -> Self {
        // SAFETY: NEON is part of aarch64.
        self.map(|lane| unsafe { vorrq_u8(vceqq_u8(lane, vdupq_n_u8(a)), vceqq_u8(lane, vdupq_n_u8(b))) })
    }

    /// Returns the mask of four comparisons.
    ///
    /// Each comparison contributes two bits to every byte, which then holds its four bits of the mask twice. This is
    /// assembly because the compiler would use seven instructions in place of these three.
    #[inline(always)]
    fn mask(self) -> u64 {
        let [mut bits, b, c, d] = self.0;
        // SAFETY: NEON is part of aarch64, and the assembly only changes its operands.
        unsafe {
            asm!(
                "bit {a:v}.16b, {b:v}.16b, {odd:v}.16b",
                "bit {c:v}.16b, {d:v}.16b, {odd:v}.16b",
                "bit {a:v}.16b, {c:v}.16b, {upper:v}.16b",
                a = inout(vreg) bits,
                b = in(vreg) b,
                c = inout(vreg) c => _,
                d = in(vreg) d,
                odd = in(vreg) vdupq_n_u8(0b1010_1010),
                upper = in(vreg) vdupq_n_u8(0b1100_1100),
                options(pure, nomem, nostack, preserves_flags),
            );
            vget_lane_u64::<0>(vreinterpret_u64_u8(vshrn_n_u16::<4>(vreinterpretq_u16_u8(bits))))
        }
    }

    #[inline(always)]
    fn any(self) -> bool {
        // SAFETY: NEON is part of aarch64.
        unsafe {
            let [a, b, c, d] = self.0;
            let all = vorrq_u8(vorrq_u8(a, b), vorrq_u8(c, d));
            vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpmaxq_u8(all, all))) != 0
        }
    }
}

impl Block for Neon {
    #[inline(always)]
    fn load(bytes: &[u8; WIDTH]) -> Self {
        // SAFETY: the load is of the 64 bytes, and needs no alignment.
        let uint8x16x4_t(a, b, c, d) = unsafe { vld4q_u8(bytes.as_ptr()) };
        Self([a, b, c, d])
    }

    #[inline(always)]
    fn fold(self) -> Self {
        // SAFETY: NEON is part of aarch64.
        self.map(|lane| unsafe { vorrq_u8(lane, vdupq_n_u8(0x20)) })
    }

    #[inline(always)]
    fn eq(self, byte: u8) -> u64 {
        self.equal(byte).mask()
    }

    #[inline(always)]
    fn either(self, a: u8, b: u8) -> u64 {
        self.equal_either(a, b).mask()
    }

    #[inline(always)]
    fn le(self, byte: u8) -> u64 {
        // SAFETY: NEON is part of aarch64.
        self.map(|lane| unsafe { vcleq_u8(lane, vdupq_n_u8(byte)) }).mask()
    }

    #[inline(always)]
    fn has(self, byte: u8) -> bool {
        self.equal(byte).any()
    }

    #[inline(always)]
    fn has_either(self, a: u8, b: u8) -> bool {
        self.equal_either(a, b).any()
    }

    #[inline(always)]
    fn has_pair(self, first: u8, second: u8, before: &[u8; WIDTH]) -> bool {
        // Loading `before` would cost more than a second mask.
        let after_first = self.eq(first) << 1 | u64::from(before[0] == first);
        self.eq(second) & after_first != 0
    }

    #[inline(always)]
    fn has_le(self, byte: u8) -> bool {
        // SAFETY: NEON is part of aarch64.
        let smallest = unsafe {
            let [a, b, c, d] = self.0;
            vminq_u8(vminq_u8(a, b), vminq_u8(c, d))
        };
        // SAFETY: NEON is part of aarch64.
        unsafe {
            let found = vcleq_u8(smallest, vdupq_n_u8(byte));
            vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpmaxq_u8(found, found))) != 0
        }
    }

    #[inline(always)]
    fn within(self, low: u8, high: u8) -> u64 {
        // SAFETY: NEON is part of aarch64.
        self.map(|lane| unsafe { vsubq_u8(lane, vdupq_n_u8(low)) }).le(high - low)
    }

    #[inline(always)]
    fn bit5(self) -> u64 {
        // SAFETY: NEON is part of aarch64.
        self.map(|lane| unsafe { vtstq_u8(lane, vdupq_n_u8(0x20)) }).mask()
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
