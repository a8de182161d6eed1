//! Finds a pattern in the keys and values of JSON, as a reader reads them: with escapes decoded, and never across two of
//! them.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem::Finder;
use memchr::{memchr, memchr_iter, memrchr};

use super::pattern::TextSearcher;
use crate::index::{ItemIndex, Kind};
use crate::message::{measure_escape, unescape};
use crate::reader::Reader;
use crate::scan::{Isa, closing_quote};

/// Iterator over the matches in the strings (keys included), numbers and literals of JSON or NDJSON. Each is the bytes
/// of the payload that the matched text is written with.
pub(super) struct ValueMatches<'a> {
    data: &'a [u8],
    /// No match begins before this byte.
    start: usize,
    texts: Texts<'a>,
    searcher: TextSearcher<'a>,
    /// The text that is being searched.
    text: Option<Text<'a>>,
}

/// How the texts that may match are found.
enum Texts<'a> {
    /// One after the other, from this byte on.
    All(Tokens<'a>),
    /// By the bytes of a literal, and by the backslashes of texts that are written with escapes.
    WithLiteral(Candidates<'a>),
}

impl<'a> ValueMatches<'a> {
    pub(super) fn new(
        searcher: TextSearcher<'a>,
        data: &'a [u8],
        start: usize,
        index: Option<&ItemIndex>,
    ) -> Self {
        let pos = outside_before(start, index).min(data.len());
        let tokens = Tokens { data, pos, isa: Isa::detect() };
        let texts = match &searcher {
            TextSearcher::Literal(finder) => Texts::WithLiteral(Candidates::new(finder, tokens)),
            TextSearcher::Regex { .. } => Texts::All(tokens),
        };
        Self { data, start, texts, searcher, text: None }
    }
}

/// Returns a byte at or before `start` that is certainly outside of all strings, numbers and literals.
fn outside_before(start: usize, index: Option<&ItemIndex>) -> usize {
    let Some(index) =
        index.filter(|index| matches!(index.kind(), Some(Kind::Array | Kind::Map | Kind::Ndjson)))
    else {
        return 0;
    };
    let offset = match index.entry_at(start as u64) {
        Some(_) if start as u64 >= index.end() => index.end(),
        Some(entry) => entry.offset,
        None => 0,
    };
    usize::try_from(offset).unwrap_or_default()
}

impl Iterator for ValueMatches<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            if let Some(text) = &mut self.text {
                if let Some(found) = text.next(&mut self.searcher) {
                    self.start = found.end;
                    return Some(found);
                }
                self.text = None;
            }
            let content = match &mut self.texts {
                Texts::All(tokens) => tokens.next_from(self.start)?,
                Texts::WithLiteral(candidates) => match candidates.next(self.start)? {
                    Candidate::Match(found) => {
                        self.start = found.end;
                        return Some(found);
                    }
                    Candidate::Escaped(content) => content,
                },
            };
            self.text = Some(Text::new(self.data, content, self.start));
        }
    }
}

/// Tokens of a payload, from a byte outside of all tokens on.
struct Tokens<'a> {
    data: &'a [u8],
    pos: usize,
    isa: Isa,
}

impl Tokens<'_> {
    /// Returns the content of the next string, number or literal that does not end before `start`.
    fn next_from(&mut self, start: usize) -> Option<Range<usize>> {
        loop {
            let rest = self.data.get(self.pos..)?;
            let is_first = |byte: &u8| matches!(byte, b'"' | b'-') || byte.is_ascii_alphanumeric();
            self.pos += rest.iter().position(is_first)?;
            let is_string = self.data.get(self.pos) == Some(&b'"');
            let span = Reader::at(self.data, self.pos, self.isa).skip().ok()?;
            self.pos = span.end;
            if span.end > start {
                return Some(if is_string { span.start + 1..span.end - 1 } else { span });
            }
        }
    }
}

/// Places where a literal may be: where its bytes are, and in strings with escapes.
struct Candidates<'a> {
    finder: &'a Finder<'static>,
    /// Whether the literal can be written without escapes in a string.
    is_plain: bool,
    /// Whether it can be a part of a number or of `true`, `false` or `null`.
    is_scalar: bool,
    tokens: Tokens<'a>,
    /// Whether `tokens.pos` is inside a string.
    is_inside: bool,
    /// The next backslash and the next occurrence of the literal, as far as they are known; beyond the end if there is
    /// none.
    backslash: usize,
    occurrence: usize,
}

enum Candidate {
    Match(Range<usize>),
    /// The content of a string with escapes.
    Escaped(Range<usize>),
}

impl<'a> Candidates<'a> {
    fn new(finder: &'a Finder<'static>, tokens: Tokens<'a>) -> Self {
        let needle = finder.needle();
        Self {
            finder,
            is_plain: needle.iter().all(|&byte| byte >= b' ' && byte != b'"' && byte != b'\\'),
            is_scalar: needle
                .iter()
                .all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')),
            backslash: find_from(tokens.data, tokens.pos, |rest| memchr(b'\\', rest)),
            // Searched for when it is first needed.
            occurrence: 0,
            tokens,
            is_inside: false,
        }
    }

    /// Returns the next candidate. A match does not begin before `start`; a string with escapes may.
    fn next(&mut self, mut start: usize) -> Option<Candidate> {
        let data = self.tokens.data;
        loop {
            let from = start.max(self.tokens.pos);
            if self.backslash < self.tokens.pos {
                self.backslash = find_from(data, self.tokens.pos, |rest| memchr(b'\\', rest));
            }
            if !self.is_plain {
                self.occurrence = data.len();
            } else if self.occurrence < from || self.occurrence == 0 {
                self.occurrence = find_from(data, from, |rest| self.finder.find(rest));
            }
            if self.occurrence < self.backslash {
                let found = self.occurrence..self.occurrence + self.finder.needle().len();
                self.advance(found.start);
                if self.is_inside || self.is_scalar {
                    self.tokens.pos = found.end;
                    return Some(Candidate::Match(found));
                }
                // It is in the white space between values.
                start = found.start + 1;
                self.occurrence = 0;
            } else if self.backslash < data.len() {
                let backslash = self.backslash;
                self.advance(backslash);
                if !self.is_inside {
                    // Not JSON.
                    self.tokens.pos += 1;
                    continue;
                }
                // A string is skipped from its first backslash on, so there is none before.
                let content = memrchr(b'"', &data[..backslash])? + 1;
                let end = backslash + closing_quote(self.tokens.isa, &data[backslash..])?;
                (self.tokens.pos, self.is_inside) = (end + 1, false);
                if end > start {
                    return Some(Candidate::Escaped(content..end));
                }
            } else {
                return None;
            }
        }
    }

    /// Moves to a byte. There is no backslash on the way.
    fn advance(&mut self, to: usize) {
        let passed = self.tokens.data.get(self.tokens.pos..to).unwrap_or_default();
        self.is_inside ^= memchr_iter(b'"', passed).count() % 2 == 1;
        self.tokens.pos = to;
    }
}

/// Returns what `find` returns for the bytes from `start` on, as a position in `data`; the end if that is nothing.
fn find_from(data: &[u8], start: usize, find: impl Fn(&[u8]) -> Option<usize>) -> usize {
    data.get(start..).and_then(find).map_or(data.len(), |found| start + found)
}

/// A decoded text, and how far it was searched.
struct Text<'a> {
    raw: &'a [u8],
    /// Offset of `raw` in the payload.
    base: usize,
    decoded: Cow<'a, [u8]>,
    at: Cursor,
}

impl<'a> Text<'a> {
    /// Decodes the bytes `content` of a payload, to be searched from byte `start` of the payload on.
    fn new(data: &'a [u8], content: Range<usize>, start: usize) -> Self {
        let raw = data.get(content.clone()).unwrap_or_default();
        let decoded = if memchr(b'\\', raw).is_some() { unescape(raw).into() } else { raw.into() };
        let mut at = Cursor::default();
        at.skip(raw, start.saturating_sub(content.start));
        Self { raw, base: content.start, decoded, at }
    }

    fn next(&mut self, searcher: &mut TextSearcher<'_>) -> Option<Range<usize>> {
        let found = searcher.find(&self.decoded, self.at.decoded)?;
        if let Cow::Borrowed(_) = self.decoded {
            self.at = Cursor { raw: found.end, decoded: found.end };
            return Some(self.base + found.start..self.base + found.end);
        }
        self.at.advance(self.raw, found.start);
        let start = self.at.raw;
        self.at.advance(self.raw, found.end);
        if self.at.decoded < found.end {
            // The match ends inside of a character that is written as an escape.
            self.at.skip_escape(self.raw);
        }
        Some(self.base + start..self.base + self.at.raw)
    }
}

/// The same place in a raw and in a decoded text, never inside of an escape.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    raw: usize,
    decoded: usize,
}

impl Cursor {
    /// Moves to a position in the decoded text, or to the start of the escape it is in.
    fn advance(&mut self, raw: &[u8], decoded: usize) {
        loop {
            let plain = self.plain_bytes(raw, decoded.saturating_sub(self.decoded));
            self.raw += plain;
            self.decoded += plain;
            if self.decoded >= decoded || self.raw >= raw.len() {
                return;
            }
            let before = *self;
            self.skip_escape(raw);
            if self.decoded > decoded {
                *self = before;
                return;
            }
        }
    }

    /// Moves to a position in the raw text, or to the end of the escape it is in.
    fn skip(&mut self, raw: &[u8], to: usize) {
        while self.raw < to.min(raw.len()) {
            let plain = self.plain_bytes(raw, to - self.raw);
            self.raw += plain;
            self.decoded += plain;
            if self.raw < to.min(raw.len()) {
                self.skip_escape(raw);
            }
        }
    }

    /// Returns how many of the next `max` bytes are before an escape.
    fn plain_bytes(&self, raw: &[u8], max: usize) -> usize {
        let rest = raw.get(self.raw..).unwrap_or_default();
        let rest = rest.get(..max).unwrap_or(rest);
        memchr(b'\\', rest).unwrap_or(rest.len())
    }

    fn skip_escape(&mut self, raw: &[u8]) {
        let (raw_len, decoded_len) = measure_escape(raw.get(self.raw..).unwrap_or_default());
        self.raw += raw_len;
        self.decoded += decoded_len;
    }
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
