//! Strings and numbers of a valid JSON document, and writing strings.

use std::ops::Range;

use crate::reader::Reader;
use crate::scan::Isa;

/// A string, quotes included, or a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) span: Range<usize>,
    pub(super) is_string: bool,
}

impl Token {
    /// Returns the span without the quotes.
    pub(super) fn content(&self) -> Range<usize> {
        if self.is_string { self.span.start + 1..self.span.end - 1 } else { self.span.clone() }
    }
}

/// Iterator over the strings (keys included) and numbers of a document.
pub(super) struct Tokens<'a> {
    json: &'a [u8],
    pos: usize,
    isa: Isa,
}

impl<'a> Tokens<'a> {
    /// Starts at `pos`, which must not be inside a token.
    pub(super) fn new(json: &'a [u8], pos: usize) -> Self {
        Self { json, pos, isa: Isa::detect() }
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        let rest = self.json.get(self.pos..)?;
        let start = self.pos + rest.iter().position(|byte| matches!(byte, b'"' | b'-' | b'0'..=b'9'))?;
        let span = Reader::at(self.json, start, self.isa).skip().ok()?;
        self.pos = span.end;
        Some(Token { is_string: self.json[start] == b'"', span })
    }
}

/// Appends a text as a JSON string. A lone surrogate in WTF-8 is escaped, other bytes that are not UTF-8 become
/// U+FFFD.
pub(super) fn push_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    while !rest.is_empty() {
        let valid = match std::str::from_utf8(rest) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default(),
        };
        push_escaped(valid, out);
        rest = &rest[valid.len()..];
        rest = match rest {
            [] => rest,
            [0xed, second @ 0xa0..=0xbf, third @ 0x80..=0xbf, after @ ..] => {
                let unit = 0xd000 | u32::from(second & 0x3f) << 6 | u32::from(third & 0x3f);
                out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                after
            }
            [_, after @ ..] => {
                out.extend_from_slice("\u{fffd}".as_bytes());
                after
            }
        };
    }
    out.push(b'"');
}

fn push_escaped(text: &str, out: &mut Vec<u8>) {
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
}
