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
