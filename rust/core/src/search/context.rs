//! The text around a match.

use std::ops::Range;
use std::str;

use crate::utf8::escape_across;

/// Of a longer match only the beginning is shown: it may be as long as the payload.
const MATCH_SHOWN: usize = 256;

/// A longer run of backslashes is read as if it started here, so that no match costs more than its context.
const MAX_BACKSLASHES: usize = 4096;

/// The match and up to `context` bytes on either side, and the byte that starts at.
///
/// Whole characters, cut neither inside a JSON escape nor between the halves of an escaped surrogate pair (save
/// where the match itself begins or ends there). Stops short of bytes that are not UTF-8; `None` if the match
/// itself is not. A match of more than 256 bytes counts as its first 256.
pub(super) fn around(data: &[u8], at: &Range<usize>, context: usize) -> (usize, Option<String>) {
    let shown = at.start..at.end.min(at.start.saturating_add(MATCH_SHOWN));
    if !is_text(data.get(shown.clone()).unwrap_or_default(), shown.end < at.end) {
        return (at.start, None);
    }
    let start = start_of_text(data, shown.start, context);
    let end = end_of_text(data, &shown, at.end, context);
    let text = data.get(start..end).and_then(|bytes| str::from_utf8(bytes).ok());
    (start, text.map(str::to_owned))
}

/// `cut`: the last character may be incomplete.
fn is_text(bytes: &[u8], cut: bool) -> bool {
    match str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => cut && error.error_len().is_none(),
    }
}

/// The first byte, at most `context` before `end`, from which on everything is whole.
fn start_of_text(data: &[u8], end: usize, context: usize) -> usize {
    let mut start = end.saturating_sub(context);
    if let Some(escape) = escape_around(data, start) {
        start = escape.end.min(end);
    }
    while let Some(Err(error)) = data.get(start..end).map(str::from_utf8) {
        // An incomplete character at the end belongs to nothing: the match starts after it.
        let Some(invalid) = error.error_len() else { return end };
        start += error.valid_up_to() + invalid;
    }
    start
}

/// The last byte, at most `context` after what is `shown` of the match, up to which everything is whole.
fn end_of_text(data: &[u8], shown: &Range<usize>, match_end: usize, context: usize) -> usize {
    let limit = shown.end.saturating_add(context).min(data.len());
    let text = data.get(shown.start..limit).unwrap_or_default();
    let end = shown.start
        + match str::from_utf8(text) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
    // A match ends where it ends, inside an escape or not.
    let least = if shown.end == match_end { shown.end } else { shown.start };
    escape_around(data, end).map_or(end, |escape| escape.start.max(least))
}

/// The escape, or the surrogate pair of escapes, that a cut before byte `at` would break.
fn escape_around(data: &[u8], at: usize) -> Option<Range<usize>> {
    let from = at.saturating_sub(MAX_BACKSLASHES);
    let escape = escape_across(data.get(from..)?, at - from)?;
    Some(from + escape.start..from + escape.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Which cuts are inside of an escape, read from the start.
    fn broken_cuts(data: &[u8]) -> Vec<bool> {
        let mut broken = vec![false; data.len() + 1];
        let mut at = 0;
        while at < data.len() {
            let len = if data[at] == b'\\' { escape_len(&data[at..]) } else { 1 };
            broken[at + 1..at + len].fill(true);
            at += len;
        }
        broken
    }

    /// How long the escape is that `bytes`, a backslash first, start with.
    fn escape_len(bytes: &[u8]) -> usize {
        let unit = |at: usize| {
            let digits = str::from_utf8(bytes.get(at..at + 6)?).ok()?.strip_prefix("\\u")?;
            u16::from_str_radix(digits, 16).ok()
        };
        match (unit(0), unit(6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(_), _) => 6,
            _ => (2..=5.min(bytes.len()))
                .find(|&end| str::from_utf8(&bytes[1..end]).is_ok())
                .unwrap_or(bytes.len().min(2)),
        }
    }

    /// Tries every start and every end, the furthest first. For matches that are shown whole.
    fn naive(data: &[u8], at: &Range<usize>, context: usize) -> (usize, Option<String>) {
        let broken = broken_cuts(data);
        let text = |range: Range<usize>| str::from_utf8(&data[range]).ok();
        if text(at.clone()).is_none() {
            return (at.start, None);
        }
        let start = (at.start.saturating_sub(context)..at.start)
            .find(|&start| !broken[start] && text(start..at.start).is_some())
            .unwrap_or(at.start);
        let end = (at.end + 1..=data.len().min(at.end + context))
            .rfind(|&end| !broken[end] && text(at.end..end).is_some())
            .unwrap_or(at.end);
        (start, text(start..end).map(str::to_owned))
    }

    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            &b"a"[..],
            b"\\",
            b"\\\\",
            b"\\n",
            b"\\u00e9",
            b"\\uD83D\\uDE00",
            b"\\uD83D",
            b"\\uDE00",
            b"\\u12",
            b"\"",
            b"\xFF",
            b"\xE6\xBC",
            "é".as_bytes(),
            "漢".as_bytes(),
            "😀".as_bytes(),
        ]);
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn is_whole_around_every_match(data in pieces(), context in 0..30_usize) {
            for start in 0..data.len() {
                for end in start + 1..=data.len() {
                    let at = start..end;
                    prop_assert_eq!(around(&data, &at, context), naive(&data, &at, context), "{:?}", at);
                }
            }
        }

        #[test]
        fn shows_the_beginning_of_a_long_match(before in 0..40_usize, data in pieces(), context in 0..300_usize) {
            // Moves each piece over the edge of what is shown.
            let filler = MATCH_SHOWN - 20 + before;
            let data = [&b"x".repeat(filler), &data[..], &b"y".repeat(600)].concat();
            let at = 5..data.len() - 5;
            let (start, text) = around(&data, &at, context);
            let shown = at.start..at.start + MATCH_SHOWN;
            if let Some(text) = &text {
                prop_assert!(text.len() <= 5 + MATCH_SHOWN + context);
                prop_assert_eq!(&data[start..start + text.len()], text.as_bytes());
                prop_assert!(!broken_cuts(&data)[start + text.len()]);
            }
            prop_assert_eq!(text.is_none(), !is_text(&data[shown], true));
        }
    }

    #[test]
    fn takes_any_context() {
        assert_eq!(around(b"abc", &(1..2), usize::MAX), (0, Some("abc".to_owned())));
        assert_eq!(around(b"abc", &(1..2), 0), (1, Some("b".to_owned())));
    }
}
