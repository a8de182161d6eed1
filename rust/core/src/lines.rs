//! Pages of lines: whole lines within a budget.
//!
//! A line ends after its `\n`, which the last line may lack. Blank lines count.

use std::ops;

use memchr::{memchr, memchr_iter, memrchr, memrchr_iter};

use crate::error::{Error, Result};
use crate::escaping::Escaping;
use crate::index::{ItemIndex, Kind};
use crate::page::Cut;
use crate::range::Range;
use crate::utf8::{check_text, floor_boundary};

/// Number and offset of a line whose start is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LineStart {
    line: u64,
    byte: usize,
}

/// A page of lines, as a span of the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinePage {
    /// Number of the first line.
    pub offset: u64,
    /// How many lines the page has, a truncated one included.
    pub returned: u64,
    /// How many lines the payload has, if known: from an index, or because this is the last page.
    pub total: Option<u64>,
    /// Number of the line after the last one returned; `None` at the end.
    pub next_offset: Option<u64>,
    /// The text is `data[span]`, and is UTF-8.
    pub span: ops::Range<usize>,
    /// Set if the first line alone exceeds the budget. It is then the only line of the page.
    pub truncated: Option<Cut>,
}

/// Reads whole lines that take at most `max_bytes` once escaped.
///
/// With a line index, the cost does not depend on the position of the page. A line that alone exceeds the
/// budget is cut at a character boundary and returned alone. A suffix page starts at the first of the last
/// lines; what the budget leaves out is at its end, and `next_offset` continues there.
///
/// # Errors
/// `InvalidArgument` for a limit of 0, a budget too small for one character, or an index of items;
/// `CorruptIndex` if the index visibly belongs to another payload; `InvalidText` if the lines are not UTF-8.
pub fn read_lines(
    data: &[u8],
    index: Option<&ItemIndex>,
    range: Range,
    max_bytes: u64,
    escaping: Escaping,
) -> Result<LinePage> {
    if let Some(index) = index {
        return read_indexed(data, index, range, max_bytes, escaping);
    }
    let start = LineStart::default();
    match range {
        Range::Bounded { offset, limit } => read_from(data, start, None, offset, limit, max_bytes, escaping),
        Range::From(offset) => read_from(data, start, None, offset, u64::MAX, max_bytes, escaping),
        Range::Suffix(count) => {
            let byte = last_lines_start(data, count);
            let line = count_lines(&data[..byte]);
            read_from(data, LineStart { line, byte }, None, line, count.max(1), max_bytes, escaping)
        }
    }
}

fn read_indexed(
    data: &[u8],
    index: &ItemIndex,
    range: Range,
    max_bytes: u64,
    escaping: Escaping,
) -> Result<LinePage> {
    if index.kind() != Some(Kind::Lines) {
        return Err(Error::argument("read_lines takes an index of lines, which index_lines makes"));
    }
    if index.end() != data.len() as u64 {
        return Err(Error::index("the payload has another length"));
    }
    let total = index.len();
    let lines = range.resolve(total);
    let known = if lines.start < total {
        let entry = index.entry_before(lines.start);
        LineStart { line: entry.number, byte: usize::try_from(entry.offset).unwrap_or(data.len()) }
    } else {
        LineStart { line: total, byte: data.len() }
    };
    let limit = match range {
        Range::Bounded { limit, .. } => limit,
        _ => (lines.end - lines.start).max(1),
    };
    read_from(data, known, Some(total), lines.start, limit, max_bytes, escaping)
}

/// Reads from line `offset` on. The search for it begins at `known`, a line start at or before it. `total`
/// comes from an index.
fn read_from(
    data: &[u8],
    known: LineStart,
    total: Option<u64>,
    offset: u64,
    limit: u64,
    max_bytes: u64,
    escaping: Escaping,
) -> Result<LinePage> {
    if limit < 1 {
        return Err(Error::argument("limit must be at least 1"));
    }
    let budget = escaping.check_budget(max_bytes)?;
    let LineStart { line, byte: start } = skip_lines(data, known, offset);
    let (span, truncated) = match whole_lines(data, start, limit, budget, escaping) {
        end if end == start && start < data.len() => {
            let (end, cut) = cut_line(data, LineStart { line, byte: start }, budget, escaping);
            (start..end, Some(cut))
        }
        end => (start..end, None),
    };
    check_text(data, span.clone())?;
    let returned = truncated.map_or_else(|| count_lines(&data[span.clone()]), |_| 1);
    let read_to = truncated.map_or(span.end, |cut| start + cut.size_bytes as usize);
    let next = line.saturating_add(returned);
    let next_offset = (read_to < data.len()).then_some(next);
    let total = total.or_else(|| next_offset.is_none().then_some(next));
    Ok(LinePage { offset: line, returned, total, next_offset, span, truncated })
}

/// Counts the lines of `data`.
pub(crate) fn count_lines(data: &[u8]) -> u64 {
    let is_unterminated = data.last().is_some_and(|&byte| byte != b'\n');
    memchr_iter(b'\n', data).count() as u64 + u64::from(is_unterminated)
}

/// Returns where the last `count` lines start.
pub(crate) fn last_lines_start(data: &[u8], count: u64) -> usize {
    let Some(skip) = count.checked_sub(1) else { return data.len() };
    // A newline as the last byte ends the last line and starts none, so only those before it count.
    let before = &data[..data.len().saturating_sub(1)];
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    memrchr_iter(b'\n', before).nth(skip).map_or(0, |line_end| line_end + 1)
}

/// Returns the end of the line that starts at `start`, after its `\n`.
pub(crate) fn line_end(data: &[u8], start: usize) -> usize {
    memchr(b'\n', &data[start..]).map_or(data.len(), |found| start + found + 1)
}

/// Returns where line `offset` starts; if there are fewer lines, the end and the line count.
fn skip_lines(data: &[u8], known: LineStart, offset: u64) -> LineStart {
    /// Counting the newlines of a block is many times faster than stopping at each.
    const BLOCK_BYTES: usize = 16 * 1024;
    let LineStart { mut line, mut byte } = known;
    byte = byte.min(data.len());
    while line < offset && byte < data.len() {
        let block = &data[byte..data.len().min(byte + BLOCK_BYTES)];
        let ends = memchr_iter(b'\n', block).count() as u64;
        if line.saturating_add(ends) < offset {
            line += ends;
            byte += block.len();
            continue;
        }
        // At most the number of newlines in a block, so it fits.
        let last = (offset - line - 1) as usize;
        byte += memchr_iter(b'\n', block).nth(last).map_or(block.len(), |found| found + 1);
        line = offset;
    }
    let is_unterminated =
        line < offset && byte > known.byte && data.last().is_some_and(|&last| last != b'\n');
    LineStart { line: line.saturating_add(is_unterminated.into()), byte }
}

/// Returns the end of as many whole lines as fit; `start` if not even one does.
fn whole_lines(data: &[u8], start: usize, limit: u64, budget: usize, escaping: Escaping) -> usize {
    let window = &data[start..data.len().min(start.saturating_add(budget))];
    let last = usize::try_from(limit - 1).unwrap_or(usize::MAX);
    let limit_end = memchr_iter(b'\n', window).nth(last).map_or(window.len(), |found| found + 1);
    let fit_end = escaping.fit(&window[..limit_end], budget);
    if start + fit_end == data.len() {
        return data.len();
    }
    start + memrchr(b'\n', &window[..fit_end]).map_or(0, |found| found + 1)
}

/// Cuts a line that does not fit. Returns where its shown part ends, and the [`Cut`].
fn cut_line(data: &[u8], at: LineStart, budget: usize, escaping: Escaping) -> (usize, Cut) {
    let LineStart { line, byte: start } = at;
    let line_end = line_end(data, start);
    let end = floor_boundary(data, start + escaping.fit(&data[start..line_end], budget)).max(start);
    (end, Cut { index: line, size_bytes: (line_end - start) as u64, byte_offset: end as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Escaping; 3] = [Escaping::Never, Escaping::Once, Escaping::Twice];

    fn log() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            3 => crate::testing::text(),
            3 => "\n{1,3}",
            1 => Just("x".repeat(70)),
            1 => Just("\r\n".to_owned()),
        ];
        prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
    }

    /// Reference: splits all of the text.
    fn naive(text: &str, first: usize, limit: usize, max_bytes: usize, escaping: Escaping) -> LinePage {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let size = |lines: &[&str]| lines.iter().map(|line| line.len()).sum::<usize>();
        let first = first.min(lines.len());
        let start = size(&lines[..first]);
        let escaped_len = |end| escaping.escaped_len(&text.as_bytes()[start..end]);
        let fits = |count: &usize| escaped_len(start + size(&lines[first..first + count])) <= max_bytes;
        let count = (0..=limit.min(lines.len() - first)).rev().find(fits).unwrap();
        let mut span = start..start + size(&lines[first..first + count]);
        let is_cut = count == 0 && first < lines.len();
        let truncated = is_cut.then(|| {
            let whole = |end: &usize| text.is_char_boundary(*end) && escaped_len(*end) <= max_bytes;
            span.end = (start..text.len()).rev().find(whole).unwrap();
            Cut { index: first as u64, size_bytes: lines[first].len() as u64, byte_offset: span.end as u64 }
        });
        let returned = if is_cut { 1 } else { count as u64 };
        let next = first as u64 + returned;
        let is_last = next == lines.len() as u64;
        let next_offset = (!is_last).then_some(next);
        LinePage {
            offset: first as u64,
            returned,
            total: is_last.then_some(next),
            next_offset,
            span,
            truncated,
        }
    }

    proptest! {
        #[test]
        fn pages_match_splitting_the_text(text in log(), limit in 1..8_usize, max_bytes in 7..90_usize) {
            let data = text.as_bytes();
            let count = text.split_inclusive('\n').count();
            let index = crate::index::index_lines(data);
            prop_assert_eq!(count_lines(data), count as u64);
            for escaping in ALL {
                for offset in 0..count + 2 {
                    let range = Range::Bounded { offset: offset as u64, limit: limit as u64 };
                    let expected = naive(&text, offset, limit, max_bytes, escaping);
                    prop_assert_eq!(read_lines(data, None, range, max_bytes as u64, escaping), Ok(expected.clone()), "{:?}", text);
                    let indexed = LinePage { total: Some(count as u64), ..expected };
                    prop_assert_eq!(read_lines(data, Some(&index), range, max_bytes as u64, escaping), Ok(indexed), "{:?}", text);
                    let expected = naive(&text, count.saturating_sub(offset), offset, max_bytes, escaping);
                    let range = Range::Suffix(offset as u64);
                    prop_assert_eq!(read_lines(data, None, range, max_bytes as u64, escaping), Ok(expected.clone()), "{:?}", text);
                    let indexed = LinePage { total: Some(count as u64), ..expected };
                    prop_assert_eq!(read_lines(data, Some(&index), range, max_bytes as u64, escaping), Ok(indexed), "{:?}", text);
                }
            }
        }

        #[test]
        fn counts_from_any_known_line(text in log(), offset in 0..12_u64) {
            let read = |known, total| read_from(text.as_bytes(), known, total, offset, 2, 50, Escaping::Once);
            let expected = read(LineStart::default(), None);
            let mut known = LineStart::default();
            for line in text.split_inclusive('\n').take(offset as usize) {
                known = LineStart { line: known.line + 1, byte: known.byte + line.len() };
                prop_assert_eq!(&read(known, None), &expected, "{:?} from {:?}", text, known);
                prop_assert_eq!(read(known, Some(7)).map(|page| page.total), Ok(Some(7)));
            }
        }
    }

    #[test]
    fn finds_lines_beyond_a_block() {
        let text: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
        for offset in [0, 1, 1_999, 2_000, 14_321, 19_999] {
            let page =
                read_lines(text.as_bytes(), None, Range::Bounded { offset, limit: 1 }, 100, Escaping::Never)
                    .unwrap();
            assert_eq!(text[page.span], format!("line {offset}\n"));
        }
        let page = read_lines(text.as_bytes(), None, Range::From(u64::MAX), 100, Escaping::Never).unwrap();
        assert_eq!((page.offset, page.total, page.span), (20_000, Some(20_000), text.len()..text.len()));
    }

    #[test]
    fn a_known_start_beyond_the_payload_gives_an_empty_page() {
        let known = LineStart { line: u64::MAX, byte: 99 };
        let page = read_from(b"a\nb", known, None, 0, 1, 9, Escaping::Never).unwrap();
        assert_eq!((page.span, page.next_offset), (3..3, None));
    }

    #[test]
    fn only_the_returned_lines_must_be_utf8() {
        let read = |offset| {
            read_lines(b"ok\n\xff\nok", None, Range::Bounded { offset, limit: 1 }, 9, Escaping::Once)
        };
        assert_eq!(read(0).unwrap().span, 0..3);
        assert_eq!(read(1), Err(Error::text(3)));
        assert_eq!(read(2).unwrap().span, 5..7);
    }

    #[test]
    fn limits_and_budgets_without_progress_are_rejected() {
        let read = |limit, max_bytes| {
            read_lines(b"", None, Range::Bounded { offset: 0, limit }, max_bytes, Escaping::Once)
        };
        assert!(read(1, 6).is_ok());
        assert!(read(1, 5).unwrap_err().to_string().contains("at least 6"));
        assert!(read(0, 6).unwrap_err().to_string().contains("limit"));
    }
}
