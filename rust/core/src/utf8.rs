//! Character and escape boundaries: where text may be cut.
//!
//! These functions look at a few bytes around a position and do not assume UTF-8: in other bytes they leave
//! the position unchanged. Callers validate the text that they return.

use std::ops::Range;
use std::str::Utf8Error;

use crate::error::{Error, Result};
use crate::scan::Isa;
use crate::scan::utf8::is_utf8;

/// Returns `at`, or the first byte of the character that `at` is inside.
pub(crate) fn floor_boundary(data: &[u8], at: usize) -> usize {
    let at = at.min(data.len());
    character_across(data, at).map_or(at, |character| character.start)
}

/// Returns `at`, or the byte after the character that `at` is inside.
pub(crate) fn ceil_boundary(data: &[u8], at: usize) -> usize {
    let at = at.min(data.len());
    character_across(data, at).map_or(at, |character| character.end)
}

/// Returns the character that starts before `at` and ends after it.
fn character_across(data: &[u8], at: usize) -> Option<Range<usize>> {
    let is_continuation = |byte: &u8| byte & 0xc0 == 0x80;
    if !data.get(at).is_some_and(is_continuation) {
        return None;
    }
    let nearby = at.saturating_sub(3);
    let start = nearby + data[nearby..at].iter().rposition(|byte| !is_continuation(byte))?;
    let end = start + character_len(data[start]);
    let is_character = end > at && std::str::from_utf8(data.get(start..end)?).is_ok();
    is_character.then_some(start..end)
}

/// Returns the length of a character, by its first byte.
fn character_len(first: u8) -> usize {
    match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    }
}

/// Fails at the first byte of `data[span]` that is not UTF-8.
pub(crate) fn check_text(data: &[u8], span: Range<usize>) -> Result<()> {
    match text_error(&data[span.clone()]) {
        None => Ok(()),
        Some(error) => Err(Error::text((span.start + error.valid_up_to()) as u64)),
    }
}

/// Returns the first UTF-8 error of `bytes`, if there is one.
///
/// `simdutf8` can report the position too, but reads twice and panics if a mapped file changes in between.
pub(crate) fn text_error(bytes: &[u8]) -> Option<Utf8Error> {
    if is_utf8(Isa::detect(), bytes) {
        return None;
    }
    str::from_utf8(bytes).err()
}

/// Returns the end of the longest prefix of at most `at` bytes that ends neither inside a UTF-8 sequence nor
/// inside a JSON escape (`\"`, `\u00e9`) or an escaped surrogate pair (`\ud83d\ude00`).
///
/// The bytes after `at` decide, so `data` should not end there. A run of backslashes is followed back to its
/// start.
pub(crate) fn whole_end(data: &[u8], at: usize) -> usize {
    let at = floor_boundary(data, at);
    if at == data.len() {
        return at;
    }
    escape_across(data, at).map_or(at, |escape| escape.start)
}

/// The length of `\u00e9`.
const UNICODE_ESCAPE_LEN: usize = 6;
/// The length of `\ud83d\ude00`.
const PAIR_LEN: usize = 2 * UNICODE_ESCAPE_LEN;

/// Returns the JSON escape or escaped surrogate pair that starts before `at` and ends after it.
///
/// Any backslash and the character after it count as an escape, even if JSON does not define it.
pub(crate) fn escape_across(data: &[u8], at: usize) -> Option<Range<usize>> {
    let last = |len: usize| at.saturating_sub(len - 1)..at;
    let pair = || last(PAIR_LEN).find(|&start| is_pair(data, start)).map(|start| start..start + PAIR_LEN);
    let unit = || {
        let start = last(UNICODE_ESCAPE_LEN).find(|&start| unicode_escape(data, start).is_some())?;
        Some(start..start + UNICODE_ESCAPE_LEN)
    };
    let short = || (at < data.len() && is_escaped(data, at)).then(|| at - 1..ceil_boundary(data, at + 1));
    pair().or_else(unit).or_else(short)
}

fn is_pair(data: &[u8], at: usize) -> bool {
    let is_half = |at, first| unicode_escape(data, at).is_some_and(|unit| unit & 0xfc00 == first);
    is_half(at, 0xd800) && is_half(at + UNICODE_ESCAPE_LEN, 0xdc00)
}

/// Returns the UTF-16 unit of the escape that starts at `at`.
fn unicode_escape(data: &[u8], at: usize) -> Option<u16> {
    let &[b'\\', b'u', ref digits @ ..] = data.get(at..at + UNICODE_ESCAPE_LEN)? else { return None };
    let mut unit = 0;
    for &digit in digits {
        unit = unit << 4 | char::from(digit).to_digit(16)?;
    }
    if is_escaped(data, at) { None } else { u16::try_from(unit).ok() }
}

/// Whether a backslash that is not itself escaped is right before `at`.
fn is_escaped(data: &[u8], at: usize) -> bool {
    data[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference: reads the text from its start.
    pub(crate) fn naive_boundaries(text: &str) -> Vec<usize> {
        let unit = |at: usize| -> Option<u16> {
            let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
            digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
            u16::from_str_radix(digits, 16).ok()
        };
        let mut boundaries = vec![0];
        let mut at = 0;
        while let Some(first) = text[at..].chars().next() {
            at += match (first, unit(at)) {
                (_, Some(0xd800..=0xdbff)) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
                (_, Some(_)) => 6,
                ('\\', None) => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
                _ => first.len_utf8(),
            };
            boundaries.push(at);
        }
        boundaries
    }

    pub(crate) fn escaped_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            2 => crate::testing::text(),
            2 => r"\\{1,5}",
            2 => r"\\u[0-9a-fA-F]{0,4}",
            1 => r"\\ud8[0-9]{2}",
            1 => r"\\udc[0-9]{2}",
            1 => r"\\ud83d\\ude[0-4]{2}",
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    #[test]
    fn positions_in_invalid_utf8_do_not_move() {
        let data = [0x80; 9];
        for at in 0..12 {
            assert_eq!(floor_boundary(&data, at), at.min(9));
            assert_eq!(ceil_boundary(&data, at), at.min(9));
        }
        for data in [&b"\xe2\x82\xac\x82"[..], b"abc\x82", b"\xf0\x9fa\x82", b"ab\xe2\x82"] {
            assert_eq!((floor_boundary(data, 3), ceil_boundary(data, 3)), (3, 3));
        }
    }

    #[test]
    fn errors_name_the_first_invalid_byte() {
        assert_eq!(check_text(b"ab\xffcd\xff", 1..6), Err(Error::text(2)));
        assert_eq!(check_text(b"ab\xffcd\xff", 3..5), Ok(()));
    }

    proptest! {
        #[test]
        fn boundaries_match_those_of_str(text in crate::testing::text()) {
            for at in 0..text.len() + 2 {
                let is_boundary = |at: &usize| text.is_char_boundary(*at);
                let cut = at.min(text.len());
                prop_assert_eq!(floor_boundary(text.as_bytes(), at), (0..=cut).rev().find(is_boundary).unwrap());
                prop_assert_eq!(ceil_boundary(text.as_bytes(), at), (cut..=text.len()).find(is_boundary).unwrap());
            }
        }

        #[test]
        fn whole_ends_match_reading_from_the_start(text in escaped_text()) {
            let boundaries = naive_boundaries(&text);
            for at in 0..text.len() + 2 {
                let naive = boundaries.iter().copied().filter(|&end| end <= at).max();
                prop_assert_eq!(Some(whole_end(text.as_bytes(), at)), naive, "{:?} at {}", text, at);
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(data in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\\'), Just(b'u')], 0..40)) {
            for at in 0..data.len() + 2 {
                prop_assert!(floor_boundary(&data, at) <= at);
                prop_assert!(ceil_boundary(&data, at) >= at.min(data.len()));
                prop_assert!(whole_end(&data, at) <= at);
            }
        }
    }
}
