//! Decodes the escapes of 64 bytes of a JSON string at once.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi8, _mm512_and_si512, _mm512_cmpeq_epi8_mask, _mm512_cmpge_epu8_mask,
    _mm512_loadu_si512, _mm512_mask_add_epi8, _mm512_mask_mov_epi8, _mm512_maskz_compress_epi8,
    _mm512_maskz_mov_epi8, _mm512_movepi8_mask, _mm512_or_si512, _mm512_permutex2var_epi8,
    _mm512_permutexvar_epi8, _mm512_set1_epi8, _mm512_slli_epi16, _mm512_srli_epi16, _mm512_storeu_si512,
    _mm512_test_epi8_mask, _mm512_testn_epi8_mask,
};

use super::escapes::{HEX_DIGITS, SHORT_ESCAPES};
use super::{StringState, WIDTH};

/// Returns the first 128 entries of a table.
///
/// # Safety
/// As for [`decode_letters`].
#[inline(always)]
unsafe fn load_table(table: &[u8; 256]) -> [__m512i; 2] {
    // SAFETY: the caller's promise; both loads are within the table, and need no alignment.
    unsafe { [_mm512_loadu_si512(table.as_ptr().cast()), _mm512_loadu_si512(table[WIDTH..].as_ptr().cast())] }
}

/// Returns what each byte stands for as the letter of an escape, and the mask of those that stand for nothing.
///
/// # Safety
/// As for [`decode_letters`].
#[inline(always)]
unsafe fn look_up_letters(bytes: __m512i) -> (__m512i, u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let [low, high] = load_table(&SHORT_ESCAPES);
        let decoded = _mm512_permutex2var_epi8(low, bytes, high);
        // The lookup ignores the top bits of the bytes.
        (decoded, _mm512_testn_epi8_mask(decoded, decoded) | _mm512_movepi8_mask(bytes))
    }
}

/// See [`Block::unescape_letters`](super::Block::unescape_letters).
///
/// # Safety
/// The machine has the instructions that `super::avx512::run` enables.
#[inline(always)]
pub(super) unsafe fn decode_letters(bytes: __m512i, letters: u64, kept: u64, to: &mut [u8; WIDTH]) -> u64 {
    // SAFETY: the caller's promise; the store is of 64 bytes, and needs no alignment.
    unsafe {
        let (decoded, unknown) = look_up_letters(bytes);
        let replaced = _mm512_mask_mov_epi8(bytes, letters, decoded);
        _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_maskz_compress_epi8(kept, replaced));
        letters & unknown
    }
}

/// See [`Block::unescape_start`](super::Block::unescape_start).
///
/// The bytes that an escape of the form `\u` stands for are computed in its place, all three of them for every
/// escape, and masks tell which are kept.
///
/// # Safety
/// As for [`decode_letters`].
#[inline(always)]
pub(super) unsafe fn decode_start(bytes: __m512i, backslashes: u64, to: &mut [u8; WIDTH]) -> (usize, usize) {
    // SAFETY: the caller's promise; the store is of 64 bytes, and needs no alignment.
    unsafe {
        let all = |byte: u8| _mm512_set1_epi8(byte.cast_signed());
        let escaped = StringState::default().escaped_mask(backslashes);
        let starts = backslashes & !escaped;
        let (decoded, unknown) = look_up_letters(bytes);
        let are_u = _mm512_cmpeq_epi8_mask(bytes, all(b'u'));
        let with_u = escaped & are_u;

        let [low, high] = load_table(&HEX_DIGITS);
        let digits = _mm512_permutex2var_epi8(low, bytes, high);
        let are_digits = !(_mm512_movepi8_mask(digits) | _mm512_movepi8_mask(bytes));
        let digits = _mm512_maskz_mov_epi8(are_digits, digits);
        let two_digits = are_digits & are_digits >> 1;
        // Bits of the following masks are at the backslashes of escapes. They exclude those that the block cuts.
        let units = with_u >> 1 & two_digits >> 2 & two_digits >> 4;
        let nonzero = _mm512_test_epi8_mask(digits, digits);
        let from_8 = _mm512_test_epi8_mask(digits, all(8));
        let from_12 = _mm512_cmpge_epu8_mask(digits, all(12));
        let surrogates = units & _mm512_cmpeq_epi8_mask(digits, all(0xd)) >> 2 & from_8 >> 3;
        let second_halves = surrogates & from_12 >> 3;
        let first_halves = surrogates & !second_halves;
        let pairs = first_halves & second_halves >> 6;
        let second_halves = pairs << 6;
        let from_0x80 = nonzero >> 2 | nonzero >> 3 | from_8 >> 4;
        let from_0x800 = nonzero >> 2 | from_8 >> 3;

        // An escape that is invalid or continues behind the block, and a surrogate whose other half may do so.
        let stops = starts & 1 << (WIDTH - 1)
            | (escaped & unknown & !are_u) >> 1
            | with_u >> 1 & !units
            | first_halves & !0 << (WIDTH - 11);
        let consumed = stops.trailing_zeros();
        let units = units & before(consumed);

        let shift =
            |order: &[u8; WIDTH]| _mm512_permutexvar_epi8(_mm512_loadu_si512(order.as_ptr().cast()), digits);
        // An escape's digits are 2, 3, 4 and 5 bytes after its backslash. Its second byte has `next` for the digit 3 bytes
        // after the backslash, its third byte for the one that is 4 bytes after it.
        let (next, after_next) = (shift(&AHEAD_2), shift(&AHEAD_3));
        let top_two = |bits| _mm512_slli_epi16::<4>(_mm512_and_si512(bits, all(3)));
        // Bits 6 to 11 of the unit at the second byte, bits 2 to 7 at the third.
        let six = _mm512_or_si512(
            _mm512_slli_epi16::<2>(next),
            _mm512_and_si512(_mm512_srli_epi16::<2>(after_next), all(3)),
        );
        let or = |bits, mark| _mm512_or_si512(bits, all(mark));
        let (two, three) = (units & from_0x80 & !from_0x800, units & from_0x800 & !(pairs | second_halves));
        let one = units & !from_0x80;
        let mut out = _mm512_mask_mov_epi8(bytes, escaped, decoded);
        out = _mm512_mask_mov_epi8(out, three, or(next, 0xe0));
        out = _mm512_mask_mov_epi8(out, units << 1, or(six, 0x80));
        out = _mm512_mask_mov_epi8(out, two << 1, or(six, 0xc0));
        out = _mm512_mask_mov_epi8(out, units << 2, or(_mm512_or_si512(top_two(next), after_next), 0x80));
        out = _mm512_mask_mov_epi8(out, one << 2, _mm512_or_si512(_mm512_slli_epi16::<4>(next), after_next));
        // The first half of a pair makes two bytes of four, the second half the others. 0x10000 is added to what they say.
        let lead = or(_mm512_and_si512(next, all(3)), 0xf0);
        out = _mm512_mask_mov_epi8(out, pairs << 1, lead);
        out = _mm512_mask_add_epi8(out, (pairs & from_12 >> 4) << 1, out, all(1));
        let sum = _mm512_and_si512(_mm512_add_epi8(six, all(0x10)), all(0x3f));
        out = _mm512_mask_mov_epi8(out, pairs << 2, or(sum, 0x80));
        let third = _mm512_and_si512(or(six, 0x80), or(top_two(shift(&BEHIND_2)), 0xcf));
        out = _mm512_mask_mov_epi8(out, second_halves << 1, third);

        let kept = !(starts | units.wrapping_mul(0x3f)) & before(consumed)
            | three
            | (units & from_0x80) << 1
            | units << 2;
        _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_maskz_compress_epi8(kept, out));
        (consumed as usize, kept.count_ones() as usize)
    }
}

/// Returns the mask of the bytes before `end`.
#[inline(always)]
fn before(end: u32) -> u64 {
    if end == u64::BITS { !0 } else { (1 << end) - 1 }
}

const AHEAD_2: [u8; WIDTH] = rotated(2);
const AHEAD_3: [u8; WIDTH] = rotated(3);
const BEHIND_2: [u8; WIDTH] = rotated(WIDTH - 2);

/// Returns for each byte the position of the one that is `by` further on. Those past the end continue at the start.
const fn rotated(by: usize) -> [u8; WIDTH] {
    let mut order = [0; WIDTH];
    let mut at = 0;
    while at < WIDTH {
        order[at] = ((at + by) % WIDTH) as u8;
        at += 1;
    }
    order
}
