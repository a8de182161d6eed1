//! The text around a match.

use std::ops::Range;
use std::str;

/// Of a longer match only the beginning is shown: it may be as long as the payload.
const MATCH_SHOWN: usize = 256;

/// `\uXXXX\uXXXX`: the longest escape.
const PAIR: usize = 12;
const UNICODE: usize = 6;

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
    let from = at.saturating_sub(PAIR - 1);
    // The first hit is the outermost: a pair starts before its second half.
    (from..at).filter(|&start| is_escape_start(data, start)).find_map(|start| {
        let escape = start..start + escape_len(data.get(start..)?)?;
        escape.contains(&at).then_some(escape)
    })
}

fn is_escape_start(data: &[u8], at: usize) -> bool {
    if data.get(at) != Some(&b'\\') {
        return false;
    }
    let before = data.get(at.saturating_sub(MAX_BACKSLASHES)..at).unwrap_or_default();
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 0
}

/// How long the escape is that `bytes`, a backslash first, start with; `None` where JSON knows no such escape.
fn escape_len(bytes: &[u8]) -> Option<usize> {
    match bytes.get(1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => {
            let is_pair = matches!(code_unit(bytes)?, 0xD800..=0xDBFF)
                && matches!(bytes.get(UNICODE..).and_then(code_unit), Some(0xDC00..=0xDFFF));
            Some(if is_pair { PAIR } else { UNICODE })
        }
        _ => None,
    }
}

/// The code unit of the `\uXXXX` that `bytes` start with.
fn code_unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.get(..UNICODE)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)? as u16))
}
