//! Pages of text: whole characters within a budget.

use std::ops;

use crate::error::Result;
use crate::escaping::Escaping;
use crate::range::Range;
use crate::utf8::{ceil_boundary, check_text, floor_boundary};

/// A page of text, as a span of the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPage {
    /// The text is `data[span]`, and is UTF-8.
    pub span: ops::Range<usize>,
    /// The span's end; `None` at the end of the payload.
    pub next_offset: Option<u64>,
}

/// Reads text that takes at most `max_bytes` once escaped.
///
/// An offset inside a character moves back to its first byte, so that consecutive pages leave no gap. A
/// suffix moves forward instead, so that it is never longer than requested. The page ends where the budget or
/// the range does. A budget that is too small for some character is rejected.
pub fn read_text(data: &[u8], range: Range, max_bytes: u64, escaping: Escaping) -> Result<TextPage> {
    let budget = escaping.check_budget(max_bytes)?;
    let bytes = range.resolve(data.len() as u64);
    // Both are at most the length, so they fit.
    let (first, last) = (bytes.start as usize, bytes.end as usize);
    let start = match range {
        Range::Suffix(_) => ceil_boundary(data, first),
        _ => floor_boundary(data, first),
    };
    let fit_len = escaping.fit(&data[start..last.max(start)], budget);
    let end = floor_boundary(data, start + fit_len).max(start);
    check_text(data, start..end)?;
    Ok(TextPage { span: start..end, next_offset: (end < data.len()).then_some(end as u64) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};
    use proptest::prelude::*;

    const ALL: [Escaping; 3] = [Escaping::Never, Escaping::Once, Escaping::Twice];

    /// Reference: takes characters one by one.
    fn naive(text: &str, start: usize, max_bytes: usize, escaping: Escaping) -> ops::Range<usize> {
        let ends = text[start..].char_indices().map(|(at, c)| start + at + c.len_utf8());
        let fits = |end: &usize| escaping.escaped_len(&text.as_bytes()[start..*end]) <= max_bytes;
        start..ends.take_while(fits).last().unwrap_or(start)
    }

    proptest! {
        #[test]
        fn pages_are_whole_characters_from_any_byte(text in crate::testing::text(), max_bytes in 7..60_usize) {
            for escaping in ALL {
                for offset in 0..text.len() + 2 {
                    let start = (0..=offset.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap();
                    let expected = naive(&text, start, max_bytes, escaping);
                    let next_offset = (expected.end < text.len()).then_some(expected.end as u64);
                    let page = read_text(text.as_bytes(), Range::From(offset as u64), max_bytes as u64, escaping);
                    prop_assert_eq!(page, Ok(TextPage { span: expected, next_offset }));
                }
            }
        }

        #[test]
        fn suffixes_are_never_longer_than_requested(text in crate::testing::text(), max_bytes in 7..60_usize) {
            for count in 0..text.len() + 2 {
                let first = text.len().saturating_sub(count);
                let start = (first..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap();
                let page = read_text(text.as_bytes(), Range::Suffix(count as u64), max_bytes as u64, Escaping::Once);
                prop_assert_eq!(page.unwrap().span, naive(&text, start, max_bytes, Escaping::Once));
            }
        }

        #[test]
        fn pages_tile(text in crate::testing::text(), more in 0..36_u64) {
            for escaping in ALL {
                let max_bytes = escaping.max_char_len() as u64 + more;
                let (mut offset, mut read) = (Some(0), Vec::new());
                while let Some(at) = offset {
                    let page = read_text(text.as_bytes(), Range::From(at), max_bytes, escaping).unwrap();
                    prop_assert_eq!(page.span.start as u64, at);
                    prop_assert!(!page.span.is_empty() || text.is_empty());
                    read.extend_from_slice(&text.as_bytes()[page.span]);
                    offset = page.next_offset;
                }
                prop_assert_eq!(&read[..], text.as_bytes());
            }
        }

        #[test]
        fn arbitrary_bytes_are_text_or_fail_at_their_byte(
            data in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xe2), Just(0x82), Just(b'a')], 0..24),
            range in prop_oneof![
                (0..26_u64).prop_map(Range::From),
                (0..26_u64).prop_map(Range::Suffix),
                (0..26_u64, 0..9_u64).prop_map(|(offset, limit)| Range::Bounded { offset, limit }),
            ],
        ) {
            match read_text(&data, range, 5, Escaping::Never) {
                Ok(page) => prop_assert!(std::str::from_utf8(&data[page.span]).is_ok()),
                Err(error) => {
                    prop_assert_eq!(&error.kind, &ErrorKind::InvalidText);
                    prop_assert!(data[error.index as usize] >= 0x80);
                }
            }
        }
    }

    #[test]
    fn errors_name_the_first_invalid_byte() {
        let read = |data: &[u8], offset| {
            read_text(data, Range::From(offset), 8, Escaping::Never).map(|page| page.span)
        };
        assert_eq!(read(b"abc\xffdef", 0), Err(Error::text(3)));
        assert_eq!(read(b"abc\xffdef", 3), Err(Error::text(3)));
        assert_eq!(read(b"abc\xffdef", 4), Ok(4..7));
        assert_eq!(read(b"abcdefgh\xff", 0), Ok(0..8));
        assert_eq!(read(b"abcd\xe2\x82", 0), Err(Error::text(4)));
        assert_eq!(read(b"abcd\xe2\x82", 99), Ok(6..6));
    }

    #[test]
    fn a_budget_too_small_for_a_character_is_rejected() {
        for escaping in ALL {
            let min_bytes = escaping.max_char_len() as u64;
            assert!(read_text(b"", Range::From(0), min_bytes, escaping).is_ok());
            let error = read_text(b"", Range::From(0), min_bytes - 1, escaping).unwrap_err();
            assert!(error.to_string().contains(&format!("at least {min_bytes}")), "{error}");
        }
        assert!(read_text(b"abc", Range::From(0), u64::MAX, Escaping::Twice).is_ok());
    }
}
