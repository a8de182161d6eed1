//! x86-64 with AVX-512 that includes VBMI2: Intel servers since 2019, AMD since 2022.
//!
//! A block is one register, and one comparison yields the mask of its 64 bytes: a third of the instructions that AVX2
//! needs. Older machines with AVX-512 slow down when they use it, so they use AVX2.

use std::arch::x86_64::{
    __m512i, _MM_HINT_T1, _mm_loadu_si128, _mm_prefetch, _mm512_alignr_epi8, _mm512_alignr_epi64,
    _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_cmpeq_epi8_mask, _mm512_cmpge_epu8_mask,
    _mm512_cmple_epu8_mask, _mm512_cmpneq_epi8_mask, _mm512_loadu_si512, _mm512_maskz_compress_epi8,
    _mm512_maskz_set1_epi8, _mm512_or_si512, _mm512_set1_epi8, _mm512_shuffle_epi8, _mm512_srli_epi16,
    _mm512_storeu_si512, _mm512_sub_epi8, _mm512_test_epi8_mask,
};

use super::avx2::Avx2;
use super::avx512_escapes::{decode_letters, decode_start};
use super::utf8::{CONTINUED, TABLES};
use super::{Block, Compressed, Kernel, WIDTH};

/// Only used inside [`run`], so the machine has the instructions for its intrinsics.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512i);

impl Avx512 {
    pub(super) fn is_available() -> bool {
        Avx2::is_available()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
    }
}

/// # Safety
/// [`Avx512::is_available`] must be true.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512>()
}

impl Block for Avx512 {
    #[inline(always)]
    fn prefetch(bytes: &[u8; WIDTH], distance: usize) {
        // SAFETY: every address may be prefetched.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(bytes.as_ptr().wrapping_add(distance).cast()) }
    }

    const HAS_MASKS: bool = true;

    #[inline(always)]
    fn load(bytes: &[u8; WIDTH]) -> Self {
        // SAFETY: called inside `run` only; the load is of these 64 bytes, and needs no alignment.
        unsafe { Self(_mm512_loadu_si512(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn fold(self) -> Self {
        // SAFETY: called inside `run` only.
        unsafe { Self(_mm512_or_si512(self.0, _mm512_set1_epi8(0x20))) }
    }

    #[inline(always)]
    fn eq(self, byte: u8) -> u64 {
        // SAFETY: called inside `run` only.
        unsafe { _mm512_cmpeq_epi8_mask(self.0, _mm512_set1_epi8(byte.cast_signed())) }
    }

    #[inline(always)]
    fn either(self, a: u8, b: u8) -> u64 {
        self.eq(a) | self.eq(b)
    }

    #[inline(always)]
    fn le(self, byte: u8) -> u64 {
        // SAFETY: called inside `run` only.
        unsafe { _mm512_cmple_epu8_mask(self.0, _mm512_set1_epi8(byte.cast_signed())) }
    }

    #[inline(always)]
    fn has(self, byte: u8) -> bool {
        self.eq(byte) != 0
    }

    #[inline(always)]
    fn has_either(self, a: u8, b: u8) -> bool {
        self.either(a, b) != 0
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
        // SAFETY: called inside `run` only.
        let shifted = unsafe { Self(_mm512_sub_epi8(self.0, _mm512_set1_epi8(low.cast_signed()))) };
        shifted.le(high - low)
    }

    #[inline(always)]
    fn bit5(self) -> u64 {
        // SAFETY: called inside `run` only.
        unsafe { _mm512_test_epi8_mask(self.0, _mm512_set1_epi8(0x20)) }
    }

    const HAS_UTF8: bool = true;

    #[inline(always)]
    fn breaks_utf8(self, before: Self) -> bool {
        // SAFETY: called inside `run` only; the loads are of the 16 bytes of each table.
        unsafe {
            let [high, low, next] =
                TABLES.each_ref().map(|table| _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())));
            // The last sixteen bytes of `before`, and all but the last sixteen of this block.
            let shifted = _mm512_alignr_epi64::<6>(self.0, before.0);
            let one = _mm512_alignr_epi8::<15>(self.0, shifted);
            let two = _mm512_alignr_epi8::<14>(self.0, shifted);
            let three = _mm512_alignr_epi8::<13>(self.0, shifted);
            let half = _mm512_set1_epi8(0x0f);
            let top = |bytes| _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), half);
            let pairs = _mm512_and_si512(
                _mm512_and_si512(
                    _mm512_shuffle_epi8(high, top(one)),
                    _mm512_shuffle_epi8(low, _mm512_and_si512(one, half)),
                ),
                _mm512_shuffle_epi8(next, top(self.0)),
            );
            // The third byte of a character and the fourth must follow a continuation.
            let longer = _mm512_cmpge_epu8_mask(two, _mm512_set1_epi8(0xe0_u8.cast_signed()))
                | _mm512_cmpge_epu8_mask(three, _mm512_set1_epi8(0xf0_u8.cast_signed()));
            let expected = _mm512_maskz_set1_epi8(longer, CONTINUED.cast_signed());
            _mm512_cmpneq_epi8_mask(pairs, expected) != 0
        }
    }

    #[inline(always)]
    fn compress(bytes: &[u8; WIDTH], mask: u64, to: &mut Compressed) {
        // SAFETY: called inside `run` only; the store is within these bytes, and needs no alignment.
        unsafe {
            let compressed = _mm512_maskz_compress_epi8(mask, Self::load(bytes).0);
            _mm512_storeu_si512(to.as_mut_ptr().cast(), compressed);
        }
    }

    const HAS_UNESCAPE: bool = true;

    #[inline(always)]
    fn unescape_letters(self, letters: u64, kept: u64, to: &mut [u8; WIDTH]) -> u64 {
        // SAFETY: called inside `run` only.
        unsafe { decode_letters(self.0, letters, kept, to) }
    }

    #[inline(always)]
    fn unescape_start(self, to: &mut [u8; WIDTH]) -> (usize, usize) {
        // SAFETY: called inside `run` only.
        unsafe { decode_start(self.0, self.eq(b'\\'), to) }
    }

    #[inline(always)]
    fn prefix_xor(mask: u64) -> u64 {
        Avx2::prefix_xor(mask)
    }

    const HAS_GATHER: bool = true;

    #[inline(always)]
    fn gather(mask: u64, at: u64) -> u64 {
        Avx2::gather(mask, at)
    }

    #[inline(always)]
    fn select(low: u64, high: u64, order: &[u8; 16]) -> u64 {
        Avx2::select(low, high, order)
    }

    #[inline(always)]
    fn scatter(bits: u64, at: u64) -> u64 {
        Avx2::scatter(bits, at)
    }
}
