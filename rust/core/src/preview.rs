//! Previews: a prefix within a budget that is not cut inside a character or escape.

use unicode_segmentation::GraphemeCursor;

use crate::csv::RowSplitter;
use crate::error::{Error, Result};
use crate::escaping::Escaping;
use crate::utf8::{ceil_boundary, floor_boundary, text_error, whole_end};

/// Bytes that a cut may move back to keep a grapheme cluster whole. Clusters have no maximum length, and a
/// payload that is one cluster should still have a preview.
const MAX_BACKTRACK_BYTES: usize = 64;

/// Returns the end of the longest whole prefix of at most `max_bytes`; `None` for binary data.
///
/// Whole: not cut inside a UTF-8 sequence, a JSON escape or an escaped surrogate pair, nor inside a grapheme
/// cluster where avoiding that costs at most 64 bytes. `max_escaped_bytes` also bounds the prefix once
/// escaped. A payload that fits is its own preview.
///
/// Binary: the bytes within the budget are not UTF-8 or contain a NUL; a character that only the budget cuts
/// does not count. The cost is bounded by the budget, not by the payload.
pub fn preview(
    data: &[u8],
    max_bytes: u64,
    max_escaped_bytes: Option<u64>,
    escaping: Escaping,
) -> Result<Option<usize>> {
    if escaping == Escaping::Never {
        return Err(Error::argument("escape_levels must be 1 or 2, not 0"));
    }
    // Every byte takes at least one byte once escaped, so both budgets bound the bytes of the prefix.
    let limit = max_escaped_bytes.map_or(max_bytes, |max_escaped| max_bytes.min(max_escaped));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let Some(mut end) = text_end(data, limit) else { return Ok(None) };
    if let Some(max_escaped) = max_escaped_bytes {
        end = escaping.fit(&data[..end], usize::try_from(max_escaped).unwrap_or(usize::MAX));
    }
    if end < data.len() {
        end = cluster_end(data, whole_end(data, end));
    }
    Ok(Some(end))
}

/// Returns the end of a preview like [`preview`], but after a whole line, or a whole row if there is a delimiter.
///
/// If whole lines would fill less than half of the preview, it ends inside a line. The line break after the last line
/// is left out.
pub fn preview_lines(
    data: &[u8],
    max_bytes: u64,
    max_escaped_bytes: Option<u64>,
    escaping: Escaping,
    delimiter: Option<u8>,
) -> Result<Option<usize>> {
    let Some(end) = preview(data, max_bytes, max_escaped_bytes, escaping)? else { return Ok(None) };
    if end == data.len() {
        return Ok(Some(end));
    }
    // A line is whole if its line break is right after the preview.
    let window = &data[..=end];
    let lines_end = match delimiter {
        Some(delimiter) => rows_end(window, delimiter),
        None => memchr::memrchr(b'\n', window).unwrap_or(0),
    };
    let lines_end = lines_end - usize::from(window[..lines_end].ends_with(b"\r"));
    Ok(Some(if lines_end >= end.div_ceil(2) { lines_end } else { end }))
}

/// Returns the end of the last row that has a line break within `window`; 0 if there is none.
fn rows_end(window: &[u8], delimiter: u8) -> usize {
    let mut splitter = RowSplitter::new(delimiter);
    let (mut start, mut end) = (0, 0);
    while let Some(length) = splitter.row_end(&window[start..]) {
        end = start + length;
        match splitter.next_start(&window[end..]) {
            Some(next) => start = end + next,
            None => break,
        }
    }
    end
}

/// Returns the end of the last character within `limit`; `None` if the bytes before it are not text.
fn text_end(data: &[u8], limit: usize) -> Option<usize> {
    let prefix = &data[..floor_boundary(data, limit)];
    let end = match text_error(prefix) {
        None => prefix.len(),
        // Within the budget this may be a character that the budget cuts. A whole character would have moved
        // the floor.
        Some(error) if error.error_len().is_none() && prefix.len() == limit && limit < data.len() => {
            error.valid_up_to()
        }
        Some(_) => return None,
    };
    memchr::memchr(0, &data[..end]).is_none().then_some(end)
}

/// Returns the last whole end at or before `end` that is not inside a cluster, or `end` if that is too far
/// back.
fn cluster_end(data: &[u8], end: usize) -> usize {
    if is_between_ascii(data, end) {
        return end;
    }
    // The next character decides whether this is a boundary, so the text includes it. It is a copy, because
    // code over `str` relies on its bytes not changing, and a mapped file may change.
    let copy = data[..ceil_boundary(data, end + 1)].to_vec();
    let text = match std::str::from_utf8(&copy) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&copy[..error.valid_up_to()]).unwrap_or_default(),
    };
    let mut at = end;
    while !is_cluster_boundary(text, at) {
        at = whole_end(data, at.saturating_sub(1));
        if end - at > MAX_BACKTRACK_BYTES {
            return end;
        }
    }
    at
}

/// Whether `at` is between two ASCII characters other than `\r\n`. Such characters never share a cluster.
fn is_between_ascii(data: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| data.get(before));
    let around = before.zip(data.get(at));
    around.is_some_and(|(before, after)| (before | after).is_ascii() && (before, after) != (&b'\r', &b'\n'))
}

/// Whether `at` is a cluster boundary of `text`. Also true where it is not even a character boundary.
fn is_cluster_boundary(text: &str, at: usize) -> bool {
    !text.is_char_boundary(at)
        || GraphemeCursor::new(at, text.len(), true).is_boundary(text, 0).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::utf8::tests::{escaped_text, naive_boundaries};
    use proptest::prelude::*;
    use unicode_segmentation::UnicodeSegmentation;

    const HUGE: u64 = u64::MAX;

    fn is_cluster_start(text: &str, at: usize) -> bool {
        at == text.len() || text.grapheme_indices(true).any(|(start, _)| start == at)
    }

    /// Reference: tries every prefix.
    fn naive(text: &str, max_bytes: usize, max_escaped: Option<usize>, escaping: Escaping) -> usize {
        let fits = |end: usize| {
            end <= max_bytes
                && max_escaped.is_none_or(|max| escaping.escaped_len(&text.as_bytes()[..end]) <= max)
        };
        let ends: Vec<_> = naive_boundaries(text).into_iter().filter(|&end| fits(end)).collect();
        let longest = *ends.last().unwrap();
        let unbroken = ends.into_iter().filter(|&end| is_cluster_start(text, end)).max().unwrap();
        if longest - unbroken <= MAX_BACKTRACK_BYTES { unbroken } else { longest }
    }

    fn clustered_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            2 => escaped_text(),
            1 => (0..70_usize).prop_map(|count| format!("e{}", "\u{301}".repeat(count))),
            1 => (0..9_usize).prop_map(|count| "🇩".repeat(count)),
            1 => (0..12_usize).prop_map(|count| "👩\u{200d}".repeat(count)),
            1 => Just("क्षि\\\"\u{301}\r\n\r\n".to_owned()),
            1 => Just("\u{600}a각".to_owned()),
        ];
        prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    fn preview_end(data: &[u8], max_bytes: usize) -> Option<usize> {
        preview(data, max_bytes as u64, None, Escaping::Once).unwrap()
    }

    #[test]
    fn a_cluster_too_long_to_avoid_is_cut_at_a_character() {
        let text = format!("e{}", "\u{301}".repeat(100));
        assert_eq!(preview_end(text.as_bytes(), 64), Some(0));
        assert_eq!(preview_end(text.as_bytes(), 66), Some(65));
        assert_eq!(preview_end(text.as_bytes(), 201), Some(201));
    }

    #[test]
    fn repeated_units_are_cut_between_units() {
        for (unit, size) in [("\\", 2), ("\"", 1), ("\u{1}", 1), ("😀", 4), ("🇩", 8), ("\\ud83d\\ude00", 12)]
        {
            let text = unit.repeat(3000);
            for max in [0, 1, 7, 2047, 2048] {
                assert_eq!(preview_end(text.as_bytes(), max), Some(max / size * size), "{unit:?} {max}");
            }
        }
    }

    #[test]
    fn binary_has_no_preview() {
        assert_eq!(preview_end(b"ab\0cd", 3), None);
        assert_eq!(preview_end(b"ab\0cd", 2), Some(2));
        assert_eq!(preview_end(b"ab\xffcd", 3), None);
        assert_eq!(preview_end(b"ab\xffcd", 2), Some(2));
        // Cut by the budget, by what follows, by the payload's end.
        assert_eq!(preview_end("ab€".as_bytes(), 4), Some(2));
        assert_eq!(preview_end(b"ab\xe2\x82cd", 4), Some(2));
        assert_eq!(preview_end(b"ab\xe2\x82cd", 5), None);
        assert_eq!(preview_end(b"ab\xe2\x82", 4), None);
        assert_eq!(preview_end(b"ab\xe2\x82", 9), None);
    }

    #[test]
    fn bytes_beyond_the_budget_are_not_examined() {
        let data = [&[b'a'; 100][..], &[0xff; 100]].concat();
        assert_eq!(preview(&data, HUGE, Some(100), Escaping::Once), Ok(Some(100)));
        assert_eq!(preview(&data, HUGE, Some(101), Escaping::Once), Ok(None));
        assert_eq!(preview(&data, 0, None, Escaping::Twice), Ok(Some(0)));
    }

    #[test]
    fn zero_escape_levels_are_rejected() {
        assert!(preview(b"", 1, None, Escaping::Never).is_err());
    }

    fn lines_end(data: &str, max_bytes: usize, delimiter: Option<u8>) -> usize {
        preview_lines(data.as_bytes(), max_bytes as u64, None, Escaping::Once, delimiter).unwrap().unwrap()
    }

    #[test]
    fn rows_may_have_line_breaks_inside() {
        let text = "id,text\r\n1,\"a\nb\"\r\n2,\"c\nd\"\r\n";
        let shown = |max, delimiter| &text[..lines_end(text, max, delimiter)];
        assert_eq!(shown(text.len() - 3, Some(b',')), "id,text\r\n1,\"a\nb\"");
        assert_eq!(shown(text.len() - 3, None), "id,text\r\n1,\"a\nb\"\r\n2,\"c");
        assert_eq!(shown(text.len(), None), text);
        assert_eq!(shown(8, Some(b',')), "id,text");
        // Nothing but a long line, or little before one.
        assert_eq!(shown(6, Some(b',')), "id,tex");
        let long = format!("a\n{}", "b".repeat(100));
        assert_eq!(lines_end(&long, 50, None), 50);
    }

    proptest! {
        #[test]
        fn lines_are_whole_or_fill_less_than_half(text in "[ab\r\né,\"]{0,60}", is_row in any::<bool>()) {
            for max in 0..text.len() + 2 {
                let end = preview_end(text.as_bytes(), max).unwrap();
                let is_end = |at: usize| match is_row {
                    // Rows end where Python's rules for quotes say so: compare with a splitter of the whole text.
                    true => {
                        let mut splitter = RowSplitter::new(b',');
                        let (mut pos, mut ends) = (0, Vec::new());
                        while let Some(length) = splitter.row_end(&text.as_bytes()[pos..]) {
                            ends.push(pos + length);
                            match splitter.next_start(&text.as_bytes()[pos + length..]) {
                                Some(next) => pos += length + next,
                                None => break,
                            }
                        }
                        ends.contains(&at)
                    }
                    false => text[at..].starts_with('\n'),
                };
                let delimiter = is_row.then_some(b',');
                let naive = (1..=end).rev().filter(|&at| text.is_char_boundary(at)).find(|&at| is_end(at));
                let naive = naive.map(|at| at - usize::from(text[..at].ends_with('\r')));
                let naive = naive.filter(|&at| at >= end.div_ceil(2) && end < text.len()).unwrap_or(end);
                prop_assert_eq!(lines_end(&text, max, delimiter), naive, "{:?} to {}", text, max);
            }
        }

        #[test]
        fn matches_trying_every_prefix(text in clustered_text(), around in 0..400_usize) {
            let data = text.as_bytes();
            for max in 0..text.len() + 2 {
                let naive_end = naive(&text, max, None, Escaping::Once);
                prop_assert_eq!(preview_end(data, max), Some(naive_end), "{:?} to {}", text, max);
            }
            for escaping in [Escaping::Once, Escaping::Twice] {
                let got = preview(data, HUGE, Some(around as u64), escaping).unwrap();
                prop_assert_eq!(got, Some(naive(&text, usize::MAX, Some(around), escaping)), "{:?}", text);
            }
            prop_assert_eq!(preview(data, HUGE, Some(HUGE), Escaping::Twice), Ok(Some(data.len())));
        }

        #[test]
        fn binary_is_what_a_utf8_decoder_rejects(data in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xcc), Just(0x81), Just(b'a')], 0..20)) {
            for max in 0..data.len() + 2 {
                let prefix = &data[..max.min(data.len())];
                let is_text = match std::str::from_utf8(prefix) {
                    Ok(text) => !text.contains('\0'),
                    Err(error) => {
                        let is_cut = error.error_len().is_none() && max < data.len();
                        is_cut && !prefix[..error.valid_up_to()].contains(&0)
                    }
                };
                let end = preview_end(&data, max);
                prop_assert_eq!(end.is_some(), is_text, "to {}", max);
                prop_assert!(end.is_none_or(|end| end <= max && std::str::from_utf8(&data[..end]).is_ok()));
            }
        }
    }
}
