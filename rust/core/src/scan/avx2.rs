//! x86-64 with AVX2, BMI and carry-less multiplication: Intel since 2013, AMD since 2015.

use std::arch::x86_64::{
    __m256i, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_movemask_epi8, _mm_set_epi64x,
    _mm_set1_epi8, _mm_shuffle_epi8, _mm256_alignr_epi8, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256,
    _mm256_permute2x128_si256, _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_srli_epi16,
    _mm256_sub_epi8, _mm256_subs_epu8, _mm256_testz_si256, _mm256_xor_si256, _pdep_u64, _pext_u64,
};

use super::utf8::{CONTINUED, TABLES};
use super::{Block, Kernel, WIDTH};

/// Only used inside [`run`], so the machine has the instructions for its intrinsics.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256i, __m256i);

impl Avx2 {
    pub(super) fn is_available() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("pclmulqdq")
    }

    /// Returns vectors with all ones in the bytes that are `a` or `b`.
    #[inline(always)]
    fn equals(self, a: u8, b: u8) -> (__m256i, __m256i) {
        // SAFETY: called inside `run` only.
        unsafe {
            let a = _mm256_set1_epi8(a.cast_signed());
            let b = _mm256_set1_epi8(b.cast_signed());
            (
                _mm256_or_si256(_mm256_cmpeq_epi8(self.0, a), _mm256_cmpeq_epi8(self.0, b)),
                _mm256_or_si256(_mm256_cmpeq_epi8(self.1, a), _mm256_cmpeq_epi8(self.1, b)),
            )
        }
    }
}

/// # Safety
/// [`Avx2::is_available`] must be true.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx2>()
}

#[inline(always)]
fn join(low: i32, high: i32) -> u64 {
    u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32
}

/// Returns the rules of UTF-8 that each byte breaks. `before` is what stands before the bytes.
///
/// # Safety
/// Called inside [`run`] only.
#[inline(always)]
unsafe fn broken_rules(bytes: __m256i, before: __m256i) -> __m256i {
    // SAFETY: the caller's promise; the loads are of the 16 bytes of each table.
    unsafe {
        let [high, low, next] = TABLES
            .each_ref()
            .map(|table| _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())));
        // The second half of `before`, and the first half of the bytes.
        let shifted = _mm256_permute2x128_si256::<0x21>(before, bytes);
        let one = _mm256_alignr_epi8::<15>(bytes, shifted);
        let two = _mm256_alignr_epi8::<14>(bytes, shifted);
        let three = _mm256_alignr_epi8::<13>(bytes, shifted);
        let half = _mm256_set1_epi8(0x0f);
        let top = |bytes| _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), half);
        let pairs = _mm256_and_si256(
            _mm256_and_si256(
                _mm256_shuffle_epi8(high, top(one)),
                _mm256_shuffle_epi8(low, _mm256_and_si256(one, half)),
            ),
            _mm256_shuffle_epi8(next, top(bytes)),
        );
        // The third byte of a character and the fourth must follow a continuation. What is left of their first byte
        // after this subtraction is not 0.
        let longer = _mm256_or_si256(
            _mm256_subs_epu8(two, _mm256_set1_epi8(0xdf_u8.cast_signed())),
            _mm256_subs_epu8(three, _mm256_set1_epi8(0xef_u8.cast_signed())),
        );
        let expected = _mm256_min_epu8(longer, _mm256_set1_epi8(CONTINUED.cast_signed()));
        _mm256_xor_si256(pairs, expected)
    }
}

impl Block for Avx2 {
    #[inline(always)]
    fn load(bytes: &[u8; WIDTH]) -> Self {
        let start = bytes.as_ptr().cast::<__m256i>();
        // SAFETY: both halves are within the 64 bytes, and the loads need no alignment.
        unsafe { Self(_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))) }
    }

    #[inline(always)]
    fn fold(self) -> Self {
        // SAFETY: called inside `run` only.
        unsafe {
            let bit = _mm256_set1_epi8(0x20);
            Self(_mm256_or_si256(self.0, bit), _mm256_or_si256(self.1, bit))
        }
    }

    #[inline(always)]
    fn eq(self, byte: u8) -> u64 {
        // SAFETY: called inside `run` only.
        unsafe {
            let byte = _mm256_set1_epi8(byte.cast_signed());
            join(
                _mm256_movemask_epi8(_mm256_cmpeq_epi8(self.0, byte)),
                _mm256_movemask_epi8(_mm256_cmpeq_epi8(self.1, byte)),
            )
        }
    }

    #[inline(always)]
    fn either(self, a: u8, b: u8) -> u64 {
        let (low, high) = self.equals(a, b);
        // SAFETY: called inside `run` only.
        unsafe { join(_mm256_movemask_epi8(low), _mm256_movemask_epi8(high)) }
    }

    #[inline(always)]
    fn le(self, byte: u8) -> u64 {
        // SAFETY: called inside `run` only.
        unsafe {
            // There is no unsigned comparison; x <= byte exactly where min(x, byte) is x.
            let byte = _mm256_set1_epi8(byte.cast_signed());
            join(
                _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(self.0, byte), self.0)),
                _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(self.1, byte), self.1)),
            )
        }
    }

    #[inline(always)]
    fn has(self, byte: u8) -> bool {
        // SAFETY: called inside `run` only.
        unsafe {
            let byte = _mm256_set1_epi8(byte.cast_signed());
            let found = _mm256_or_si256(_mm256_cmpeq_epi8(self.0, byte), _mm256_cmpeq_epi8(self.1, byte));
            _mm256_movemask_epi8(found) != 0
        }
    }

    #[inline(always)]
    fn has_either(self, a: u8, b: u8) -> bool {
        let (low, high) = self.equals(a, b);
        // SAFETY: called inside `run` only.
        unsafe { _mm256_movemask_epi8(_mm256_or_si256(low, high)) != 0 }
    }

    #[inline(always)]
    fn has_pair(self, first: u8, second: u8, before: &[u8; WIDTH]) -> bool {
        let before = Self::load(before);
        // SAFETY: called inside `run` only.
        unsafe {
            let first = _mm256_set1_epi8(first.cast_signed());
            let second = _mm256_set1_epi8(second.cast_signed());
            let low = _mm256_and_si256(_mm256_cmpeq_epi8(before.0, first), _mm256_cmpeq_epi8(self.0, second));
            let high =
                _mm256_and_si256(_mm256_cmpeq_epi8(before.1, first), _mm256_cmpeq_epi8(self.1, second));
            _mm256_movemask_epi8(_mm256_or_si256(low, high)) != 0
        }
    }

    #[inline(always)]
    fn has_le(self, byte: u8) -> bool {
        // SAFETY: called inside `run` only.
        unsafe {
            let min = _mm256_min_epu8(self.0, self.1);
            let byte = _mm256_set1_epi8(byte.cast_signed());
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(min, byte), min)) != 0
        }
    }

    #[inline(always)]
    fn within(self, low: u8, high: u8) -> u64 {
        // SAFETY: called inside `run` only.
        let shifted = unsafe {
            let low = _mm256_set1_epi8(low.cast_signed());
            Self(_mm256_sub_epi8(self.0, low), _mm256_sub_epi8(self.1, low))
        };
        shifted.le(high - low)
    }

    #[inline(always)]
    fn bit5(self) -> u64 {
        // SAFETY: called inside `run` only.
        unsafe {
            // Bits that cross into the next byte never reach its top bit.
            join(
                _mm256_movemask_epi8(_mm256_slli_epi16::<2>(self.0)),
                _mm256_movemask_epi8(_mm256_slli_epi16::<2>(self.1)),
            )
        }
    }

    const HAS_UTF8: bool = true;

    #[inline(always)]
    fn breaks_utf8(self, before: Self) -> bool {
        // SAFETY: called inside `run` only.
        unsafe {
            let low = broken_rules(self.0, before.1);
            let high = broken_rules(self.1, self.0);
            let any = _mm256_or_si256(low, high);
            _mm256_testz_si256(any, any) == 0
        }
    }

    #[inline(always)]
    fn prefix_xor(mask: u64) -> u64 {
        // SAFETY: called inside `run` only.
        unsafe {
            // Multiplying by all ones without carries adds every bit to all bits above it.
            let product = _mm_clmulepi64_si128::<0>(_mm_set_epi64x(0, mask.cast_signed()), _mm_set1_epi8(-1));
            _mm_cvtsi128_si64(product).cast_unsigned()
        }
    }

    const HAS_GATHER: bool = true;

    #[inline(always)]
    fn gather(mask: u64, at: u64) -> u64 {
        // SAFETY: called inside `run` only.
        unsafe { _pext_u64(mask, at) }
    }

    #[inline(always)]
    fn select(low: u64, high: u64, order: &[u8; 16]) -> u64 {
        // SAFETY: called inside `run` only; the load is of the 16 bytes of `order`.
        unsafe {
            let top_bits = 0x8080_8080_8080_8080;
            let low = _pdep_u64(low, top_bits).cast_signed();
            let high = _pdep_u64(high, top_bits).cast_signed();
            let order = _mm_loadu_si128(order.as_ptr().cast());
            let selected = _mm_shuffle_epi8(_mm_set_epi64x(high, low), order);
            u64::from(_mm_movemask_epi8(selected).cast_unsigned())
        }
    }

    #[inline(always)]
    fn scatter(bits: u64, at: u64) -> u64 {
        // SAFETY: called inside `run` only.
        unsafe { _pdep_u64(bits, at) }
    }
}
