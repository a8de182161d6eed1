//! Where text may be cut.
//!
//! These look at a few bytes around the place asked about and never assume that they are UTF-8: on other bytes
//! they stay where they are, and whoever shows the text validates it.

use std::ops::Range;
use std::str::Utf8Error;

use crate::error::{Error, Result};

/// `at`, or the first byte of the character that `at` is inside of.
pub(crate) fn floor_boundary(data: &[u8], at: usize) -> usize {
    let at = at.min(data.len());
    character_across(data, at).map_or(at, |character| character.start)
}

/// `at`, or the byte after the character that `at` is inside of.
pub(crate) fn ceil_boundary(data: &[u8], at: usize) -> usize {
    let at = at.min(data.len());
    character_across(data, at).map_or(at, |character| character.end)
}

/// The character that starts before `at` and ends after it.
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

/// How many bytes the first one announces.
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

/// Why bytes are not UTF-8, if they are not.
///
/// `simdutf8` can tell where, too, but looks twice for it and panics if a mapped file has changed between.
pub(crate) fn text_error(bytes: &[u8]) -> Option<Utf8Error> {
    if simdutf8::basic::from_utf8(bytes).is_ok() {
        return None;
    }
    str::from_utf8(bytes).err()
}

/// The end of the longest prefix, not beyond `at`, that ends neither inside a UTF-8 sequence nor inside a JSON
/// escape (`\"`, `\u00e9`) or a surrogate pair of them (`\ud83d\ude00`).
///
/// A prefix that ends in a lone backslash is what this is here to avoid. What follows `at` decides, so `data`
/// should not end there. A run of backslashes is looked at as far as it goes back.
pub(crate) fn whole_end(data: &[u8], at: usize) -> usize {
    let at = floor_boundary(data, at);
    if at == data.len() {
        return at;
    }
    escape_across(data, at).map_or(at, |escape| escape.start)
}

/// The length of `\u00e9`.
const UNICODE_ESCAPE: usize = 6;
/// The length of `\ud83d\ude00`.
const PAIR: usize = 2 * UNICODE_ESCAPE;

/// The JSON escape, or the surrogate pair of them, that starts before `at` and ends after it.
///
/// A backslash and the character after it are an escape in any text, also where JSON would not know it.
pub(crate) fn escape_across(data: &[u8], at: usize) -> Option<Range<usize>> {
    let last = |len: usize| at.saturating_sub(len - 1)..at;
    let pair = || last(PAIR).find(|&start| is_pair(data, start)).map(|start| start..start + PAIR);
    let unit = || {
        let start = last(UNICODE_ESCAPE).find(|&start| unicode_escape(data, start).is_some())?;
        Some(start..start + UNICODE_ESCAPE)
    };
    let short = || (at < data.len() && is_escaped(data, at)).then(|| at - 1..ceil_boundary(data, at + 1));
    pair().or_else(unit).or_else(short)
}

fn is_pair(data: &[u8], at: usize) -> bool {
    let is_half = |at, first| unicode_escape(data, at).is_some_and(|unit| unit & 0xfc00 == first);
    is_half(at, 0xd800) && is_half(at + UNICODE_ESCAPE, 0xdc00)
}

/// The UTF-16 unit that the escape starting at `at` stands for.
fn unicode_escape(data: &[u8], at: usize) -> Option<u16> {
    let &[b'\\', b'u', ref digits @ ..] = data.get(at..at + UNICODE_ESCAPE)? else { return None };
    let mut unit = 0;
    for &digit in digits {
        unit = unit << 4 | char::from(digit).to_digit(16)?;
    }
    if is_escaped(data, at) { None } else { u16::try_from(unit).ok() }
}

/// Whether a backslash that is not itself escaped stands before `at`.
fn is_escaped(data: &[u8], at: usize) -> bool {
    data[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes text apart from its start.
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
    fn bytes_that_are_not_text_stay_where_they_are() {
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
    fn a_text_that_is_not_utf8_fails_at_its_byte() {
        assert_eq!(check_text(b"ab\xffcd\xff", 1..6), Err(Error::text(2)));
        assert_eq!(check_text(b"ab\xffcd\xff", 3..5), Ok(()));
    }

    proptest! {
        #[test]
        fn boundaries_are_those_of_str(text in crate::testing::text()) {
            for at in 0..text.len() + 2 {
                let is_boundary = |at: &usize| text.is_char_boundary(*at);
                let cut = at.min(text.len());
                prop_assert_eq!(floor_boundary(text.as_bytes(), at), (0..=cut).rev().find(is_boundary).unwrap());
                prop_assert_eq!(ceil_boundary(text.as_bytes(), at), (cut..=text.len()).find(is_boundary).unwrap());
            }
        }

        #[test]
        fn whole_ends_are_where_a_reader_from_the_start_stands(text in escaped_text()) {
            let boundaries = naive_boundaries(&text);
            for at in 0..text.len() + 2 {
                let naive = boundaries.iter().copied().filter(|&end| end <= at).max();
                prop_assert_eq!(Some(whole_end(text.as_bytes(), at)), naive, "{:?} at {}", text, at);
            }
        }

        #[test]
        fn any_bytes_do_no_harm(data in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\\'), Just(b'u')], 0..40)) {
            for at in 0..data.len() + 2 {
                prop_assert!(floor_boundary(&data, at) <= at);
                prop_assert!(ceil_boundary(&data, at) >= at.min(data.len()));
                prop_assert!(whole_end(&data, at) <= at);
            }
        }
    }
}
