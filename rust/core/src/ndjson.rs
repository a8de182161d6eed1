//! NDJSON (several values, one per line): detection and splitting.

use std::ops::Range;

use crate::error::Result;
use crate::reader::Reader;
use crate::scan::Isa;

/// Whether a payload is NDJSON: its first line is one whole value, and a later line is not blank.
///
/// NDJSON values never span lines, so the first line alone tells a multi-line document apart.
pub(crate) fn is_ndjson(data: &[u8], isa: Isa) -> bool {
    let Some(start) = data.iter().position(|byte| !is_space(*byte)) else {
        return false;
    };
    let Some(newline) = memchr::memchr(b'\n', &data[start..]) else {
        return false;
    };
    let end = start + newline;
    if data[end..].iter().all(|byte| is_space(*byte)) {
        return false;
    }
    let mut reader = Reader::at(&data[..end], start, isa);
    reader.skip().is_ok() && reader.peek_or_end().is_none()
}

/// Returns the non-blank lines, without the white space around them.
pub(crate) fn lines(data: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    let ends = memchr::memchr_iter(b'\n', data).chain(std::iter::once(data.len()));
    ends.filter_map(move |end| {
        let line = trim(data, start..end);
        start = end + 1;
        (!line.is_empty()).then_some(line)
    })
}

/// Shrinks `span` by the white space at both ends.
pub(crate) fn trim(data: &[u8], mut span: Range<usize>) -> Range<usize> {
    while span.start < span.end && is_space(data[span.start]) {
        span.start += 1;
    }
    while span.start < span.end && is_space(data[span.end - 1]) {
        span.end -= 1;
    }
    span
}

/// Whether the value just read, the first of `data`, was only the first line of NDJSON. Fails if something
/// follows it and `data` is not NDJSON.
pub(crate) fn is_first_line(reader: &mut Reader<'_>, data: &[u8], isa: Isa) -> Result<bool> {
    if reader.peek_or_end().is_some() && is_ndjson(data, isa) {
        return Ok(true);
    }
    expect_end(reader).map(|()| false)
}

/// Fails if anything but white space is left.
pub(crate) fn expect_end(reader: &mut Reader<'_>) -> Result<()> {
    match reader.peek_or_end() {
        None => Ok(()),
        Some(_) => Err(reader.fail("expected the end, or a value on a line of its own")),
    }
}

pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn detect(text: &str) -> bool {
        let results: Vec<bool> =
            Isa::available().into_iter().map(|isa| is_ndjson(text.as_bytes(), isa)).collect();
        assert!(results.iter().all(|result| *result == results[0]), "{text}");
        results[0]
    }

    #[test]
    fn distinguishes_ndjson_from_a_document() {
        for lines in ["1\n2", "\n {} \r\n\n[]\n", "\"a\"\nx", "{\"a\":[1]}\n{"] {
            assert!(detect(lines), "{lines}");
        }
        for document in ["", "\n", "1", " {}\n", "[1,\n2]\n3", "1 2\n3", "\"a\n\"\n1", "{}\n \r\n", "x\ny"] {
            assert!(!detect(document), "{document}");
        }
    }

    proptest! {
        #[test]
        fn matches_split_and_trim(text in "[ab \r\t\n]{0,40}") {
            let white: &[char] = &[' ', '\t', '\r', '\n'];
            let naive: Vec<&str> =
                text.split('\n').map(|line| line.trim_matches(white)).filter(|line| !line.is_empty()).collect();
            let found: Vec<&str> = lines(text.as_bytes()).map(|line| &text[line]).collect();
            prop_assert_eq!(found, naive);
        }
    }
}
