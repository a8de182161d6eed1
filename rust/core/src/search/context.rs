//! The text around a match.

use std::ops::Range;
use std::str;

use crate::utf8::escape_across;

/// Bytes of a match that are shown. A match may be as long as the payload.
const MAX_MATCH_BYTES: usize = 256;

/// Backslashes before a cut that are examined, so that no match costs more than its context.
const MAX_BACKSLASHES: usize = 4096;

/// Returns where the context starts, and its text: the match and up to `context` bytes on either side, within `bounds`,
/// which must hold the match.
///
/// The text is whole characters, and is cut neither inside a JSON escape nor inside an escaped surrogate
/// pair, except where the match itself begins or ends there. It stops before bytes that are not UTF-8; `None`
/// if the match itself is not. Only the first 256 bytes of a longer match are shown.
pub(super) fn around(
    data: &[u8],
    at: &Range<usize>,
    context: usize,
    bounds: &Range<usize>,
) -> (usize, Option<String>) {
    let data = data.get(..bounds.end).unwrap_or(data);
    let shown = at.start..at.end.min(at.start.saturating_add(MAX_MATCH_BYTES));
    if !is_text(data.get(shown.clone()).unwrap_or_default(), shown.end < at.end) {
        return (at.start, None);
    }
    let start = start_of_text(data, shown.start, context.min(shown.start.saturating_sub(bounds.start)));
    let end = end_of_text(data, &shown, at.end, context);
    let text = data.get(start..end).and_then(|bytes| str::from_utf8(bytes).ok());
    (start, text.map(str::to_owned))
}

/// Whether bytes are UTF-8. If `is_cut`, the last character may be incomplete.
fn is_text(bytes: &[u8], is_cut: bool) -> bool {
    match str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => is_cut && error.error_len().is_none(),
    }
}

/// Returns the first position, at most `context` bytes before `end`, from which on the text is whole.
fn start_of_text(data: &[u8], end: usize, context: usize) -> usize {
    let mut start = end.saturating_sub(context);
    if let Some(escape) = escape_around(data, start) {
        start = escape.end.min(end);
    }
    while let Some(Err(error)) = data.get(start..end).map(str::from_utf8) {
        // An incomplete character right before the match cannot be shown.
        let Some(invalid) = error.error_len() else { return end };
        start += error.valid_up_to() + invalid;
    }
    start
}

/// Returns the last position, at most `context` bytes after the shown part of the match, up to which the text
/// is whole.
fn end_of_text(data: &[u8], shown: &Range<usize>, match_end: usize, context: usize) -> usize {
    let limit = shown.end.saturating_add(context).min(data.len());
    let text = data.get(shown.start..limit).unwrap_or_default();
    let end = shown.start
        + match str::from_utf8(text) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
    // The match itself is not shortened, even if it ends inside an escape.
    let min_end = if shown.end == match_end { shown.end } else { shown.start };
    escape_around(data, end).map_or(end, |escape| escape.start.max(min_end))
}

/// Returns the escape or escaped surrogate pair that a cut before byte `at` would break.
fn escape_around(data: &[u8], at: usize) -> Option<Range<usize>> {
    let from = at.saturating_sub(MAX_BACKSLASHES);
    let escape = escape_across(data.get(from..)?, at - from)?;
    Some(from + escape.start..from + escape.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns which cuts are inside an escape, by reading from the start.
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

    /// Returns the length of the escape that `bytes` start with.
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

    /// Reference: tries every start and every end, the furthest first. For matches that are shown whole.
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
                    prop_assert_eq!(around(&data, &at, context, &(0..data.len())), naive(&data, &at, context), "{:?}", at);
                }
            }
        }

        #[test]
        fn shows_the_beginning_of_a_long_match(before in 0..40_usize, data in pieces(), context in 0..300_usize) {
            // Moves each piece across the end of what is shown.
            let filler = MAX_MATCH_BYTES - 20 + before;
            let data = [&b"x".repeat(filler), &data[..], &b"y".repeat(600)].concat();
            let at = 5..data.len() - 5;
            let (start, text) = around(&data, &at, context, &(0..data.len()));
            let shown = at.start..at.start + MAX_MATCH_BYTES;
            if let Some(text) = &text {
                prop_assert!(text.len() <= 5 + MAX_MATCH_BYTES + context);
                prop_assert_eq!(&data[start..start + text.len()], text.as_bytes());
                prop_assert!(!broken_cuts(&data)[start + text.len()]);
            }
            prop_assert_eq!(text.is_none(), !is_text(&data[shown], true));
        }
    }

    #[test]
    fn stays_within_bounds() {
        for start in 0..=3 {
            for end in 4..=7 {
                let expected = "abcdefg"[start..end].to_owned();
                assert_eq!(around(b"abcdefg", &(3..4), 9, &(start..end)), (start, Some(expected)));
            }
        }
    }

    #[test]
    fn takes_any_context() {
        assert_eq!(around(b"abc", &(1..2), usize::MAX, &(0..3)), (0, Some("abc".to_owned())));
        assert_eq!(around(b"abc", &(1..2), 0, &(0..3)), (1, Some("b".to_owned())));
    }
}
