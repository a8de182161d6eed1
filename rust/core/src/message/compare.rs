//! Compares two values of a message while streaming both.

use std::io::{BufRead, Read};
use std::ops::Range;

use super::minify::Minifier;
use super::scanner::{Scanner, string_end};
use super::source::{Reader, Source, Value};
use super::unescape::Unescaper;
use crate::error::{Error, Result};
use crate::scan::Isa;

/// Bytes of each side that are compared at once.
const PIECE_BYTES: usize = 64 * 1024;

/// Smallest value for which the minified comparison is tried first.
const MIN_MINIFY_BYTES: u64 = 512;

/// Longest key that is looked for, quotes included.
const MAX_KEY_BYTES: usize = 16;

/// Whether the string `text` has the same text as the string `value`, or is JSON that equals `value`.
pub fn text_matches(text: &Value<'_>, value: &Value<'_>) -> Result<bool> {
    // Where there are many values, most are small: each is read from the file only once.
    if let (Some(left), Some(right)) = (text.read_if_small()?, value.read_if_small()?) {
        let (text, value) = (Source::Memory(&left), Source::Memory(&right));
        let (text, value) = (Value::all(&text, &left), Value::all(&value, &right));
        return Ok(same_text(&text, &value)? || same_json(&text, &value)?);
    }
    Ok(same_text(text, value)? || same_json(text, value)?)
}

/// Whether two values are strings with the same decoded text.
pub fn same_text(left: &Value<'_>, right: &Value<'_>) -> Result<bool> {
    if !left.is_string()? || !right.is_string()? {
        return Ok(false);
    }
    if left.len() == right.len() && streams_equal(&mut Bytes::of(left)?, &mut Bytes::of(right)?)? {
        return Ok(true);
    }
    streams_equal(&mut Text::of(left)?, &mut Text::of(right)?)
}

/// Whether the decoded string `text` is JSON that equals `value` token by token. White space between tokens
/// and the escaping of characters in strings do not matter.
pub fn same_json(text: &Value<'_>, value: &Value<'_>) -> Result<bool> {
    if !text.is_string()? {
        return Ok(false);
    }
    // Most pairs escape their strings alike and differ only in white space.
    if value.len() >= MIN_MINIFY_BYTES && is_equal_minified(text, value)? {
        return Ok(true);
    }
    streams_equal(&mut Canonical::new(Text::of(text)?), &mut Canonical::new(Bytes::of(value)?))
}

/// Whether both are equal once minified. If not, they may still be the same JSON.
fn is_equal_minified(text: &Value<'_>, value: &Value<'_>) -> Result<bool> {
    let isa = Isa::detect();
    let (mut left, mut right) = (Minifier::new(Text::of(text)?, isa), Minifier::new(Bytes::of(value)?, isa));
    let is_same = streams_equal(&mut left, &mut right)?;
    Ok(is_same && !left.is_unsure && !right.is_unsure)
}

/// Whether `content` is an array of `{"type": "text", "text": …}` with no other members, `items` an array of
/// as many values, and each text matches the item at its position (see [`text_matches`]).
pub fn texts_match_items(content: &Value<'_>, items: &Value<'_>) -> Result<bool> {
    let (mut blocks, mut values) = (content.scanner()?, items.scanner()?);
    if !blocks.take_if(b'[')? || !values.take_if(b'[')? {
        return Ok(false);
    }
    let mut is_first = true;
    loop {
        let (has_block, has_value) = (next_item(&mut blocks, is_first)?, next_item(&mut values, is_first)?);
        if !has_block || !has_value {
            return Ok(has_block == has_value);
        }
        is_first = false;
        let Some(text) = bare_text(&mut blocks)? else { return Ok(false) };
        let item = values.skip()?;
        if !text_matches(&content.part(&text), &items.part(&item))? {
            return Ok(false);
        }
    }
}

/// Returns the span of the value of an object's only member, if its key is `name`.
pub fn only_member(object: &Value<'_>, name: &str) -> Result<Option<Range<u64>>> {
    let mut scanner = object.scanner()?;
    if !scanner.take_if(b'{')? || take_key(&mut scanner)?.as_deref() != Some(name.as_bytes()) {
        return Ok(None);
    }
    let span = object.part(&scanner.skip()?).span;
    Ok(scanner.take_if(b'}')?.then_some(span))
}

impl<'a> Value<'a> {
    fn all(source: &'a Source<'a>, data: &[u8]) -> Self {
        Self { source, span: 0..data.len() as u64 }
    }

    /// Reads a small value from a file; `None` if it is large or in memory.
    fn read_if_small(&self) -> Result<Option<Vec<u8>>> {
        if matches!(self.source, Source::Memory(_)) || self.len() > PIECE_BYTES as u64 {
            return Ok(None);
        }
        let mut data = Vec::new();
        let read = self.source.reader(self.span.clone())?.read_to_end(&mut data);
        read.map(|_| Some(data)).map_err(|error| Error::unreadable(&error))
    }

    fn len(&self) -> u64 {
        self.span.end.saturating_sub(self.span.start)
    }

    fn is_string(&self) -> Result<bool> {
        let mut first = self.source.reader(self.span.start..self.span.end.min(self.span.start + 1))?;
        let first = first.fill_buf().map_err(|error| Error::unreadable(&error))?;
        Ok(first == b"\"" && self.len() >= 2)
    }

    pub(super) fn scanner(&self) -> Result<Scanner<Reader<'a>>> {
        Ok(Scanner::new(self.source.reader(self.span.clone())?, Isa::detect()))
    }

    /// Returns a value inside this one; `span` is relative to it.
    pub(super) fn part(&self, span: &Range<u64>) -> Self {
        let start = self.span.start;
        Self { source: self.source, span: start + span.start..start + span.end }
    }
}

/// Moves to the next item of an array. After the last one, takes the closing bracket and returns `false`.
fn next_item<R: BufRead>(scanner: &mut Scanner<R>, is_first: bool) -> Result<bool> {
    if scanner.take_if(b']')? {
        return Ok(false);
    }
    if !is_first && !scanner.take_if(b',')? {
        return Err(scanner.fail("expected a comma or a closing bracket"));
    }
    Ok(true)
}

/// Returns the text of a content block that has no other members.
fn bare_text<R: BufRead>(scanner: &mut Scanner<R>) -> Result<Option<Range<u64>>> {
    let (mut text, mut has_type) = (None, false);
    for opening in [b'{', b','] {
        if !scanner.take_if(opening)? {
            return Ok(None);
        }
        match take_key(scanner)?.as_deref() {
            Some(b"text") if scanner.peek()? == b'"' => text = Some(scanner.skip()?),
            Some(b"type") if scanner.peek()? == b'"' => {
                let mut kind = Vec::new();
                scanner.take_string(&mut kind, MAX_KEY_BYTES)?;
                has_type = kind == b"\"text\"";
            }
            _ => return Ok(None),
        }
    }
    Ok(if scanner.take_if(b'}')? && has_type { text } else { None })
}

/// Takes a key and its colon; `None` if there is no key or it is too long.
fn take_key<R: BufRead>(scanner: &mut Scanner<R>) -> Result<Option<Vec<u8>>> {
    if scanner.peek()? != b'"' {
        return Ok(None);
    }
    let mut key = Vec::new();
    scanner.take_string(&mut key, MAX_KEY_BYTES)?;
    if !scanner.take_if(b':')? {
        return Err(scanner.fail("expected a colon"));
    }
    Ok(key.strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\"")).map(<[u8]>::to_vec))
}

/// A stream of bytes in pieces of any size.
pub(super) trait Pieces {
    /// Appends the next piece, which may be empty; `false` if there is none left.
    fn pull(&mut self, out: &mut Vec<u8>) -> Result<bool>;
}

fn streams_equal(left: &mut impl Pieces, right: &mut impl Pieces) -> Result<bool> {
    let (mut left_bytes, mut right_bytes) = (Vec::new(), Vec::new());
    loop {
        let has_left = fill(left, &mut left_bytes)?;
        let has_right = fill(right, &mut right_bytes)?;
        if !has_left || !has_right {
            return Ok(has_left == has_right);
        }
        let count = left_bytes.len().min(right_bytes.len());
        if left_bytes[..count] != right_bytes[..count] {
            return Ok(false);
        }
        left_bytes.drain(..count);
        right_bytes.drain(..count);
    }
}

/// Pulls until `out` is not empty; `false` at the end of the stream.
fn fill(pieces: &mut impl Pieces, out: &mut Vec<u8>) -> Result<bool> {
    while out.is_empty() {
        if !pieces.pull(out)? {
            return Ok(!out.is_empty());
        }
    }
    Ok(true)
}

/// The raw bytes of a value.
struct Bytes<'a>(Reader<'a>);

impl<'a> Bytes<'a> {
    fn of(value: &Value<'a>) -> Result<Self> {
        value.source.reader(value.span.clone()).map(Self)
    }
}

impl Pieces for Bytes<'_> {
    fn pull(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        pull_from(&mut self.0, |piece| out.extend_from_slice(piece))
    }
}

/// Passes the next piece to `sink`; `false` at the end.
fn pull_from(reader: &mut Reader<'_>, sink: impl FnOnce(&[u8])) -> Result<bool> {
    let piece = reader.fill_buf().map_err(|error| Error::unreadable(&error))?;
    let piece = &piece[..piece.len().min(PIECE_BYTES)];
    let count = piece.len();
    sink(piece);
    reader.consume(count);
    Ok(count > 0)
}

/// The decoded text of a string.
struct Text<'a> {
    content: Reader<'a>,
    unescaper: Unescaper,
}

impl<'a> Text<'a> {
    fn of(string: &Value<'a>) -> Result<Self> {
        let content = string.source.reader(string.span.start + 1..string.span.end - 1)?;
        Ok(Self { content, unescaper: Unescaper::default() })
    }
}

impl Pieces for Text<'_> {
    fn pull(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let unescaper = &mut self.unescaper;
        let is_more = pull_from(&mut self.content, |piece| unescaper.push(piece, out))?;
        if !is_more {
            unescaper.finish(out);
        }
        Ok(is_more)
    }
}

/// JSON in a canonical form: no white space between tokens, and strings decoded. The end of a string is
/// written as `END` and a decoded `MARK` byte, which no UTF-8 text has, as `ESCAPED_MARK`, so that they
/// cannot be confused.
struct Canonical<P> {
    input: P,
    piece: Vec<u8>,
    is_inside: bool,
    is_escaped: bool,
    unescaper: Unescaper,
    /// Whether the last byte belonged to a number or literal, and whether white space followed it.
    was_word: bool,
    was_white: bool,
    isa: Isa,
}

const MARK: u8 = 0xff;
const END: [u8; 2] = [MARK, 0];
const ESCAPED_MARK: [u8; 2] = [MARK, 1];

impl<P> Canonical<P> {
    fn new(input: P) -> Self {
        Self {
            input,
            piece: Vec::new(),
            is_inside: false,
            is_escaped: false,
            unescaper: Unescaper::default(),
            was_word: false,
            was_white: false,
            isa: Isa::detect(),
        }
    }

    fn push(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        while !piece.is_empty() {
            let consumed =
                if self.is_inside { self.push_inside(piece, out) } else { self.push_outside(piece, out) };
            piece = &piece[consumed..];
        }
    }

    fn push_inside(&mut self, piece: &[u8], out: &mut Vec<u8>) -> usize {
        let end = string_end(self.isa, piece, &mut self.is_escaped);
        let before = out.len();
        self.unescaper.push(&piece[..end.unwrap_or(piece.len())], out);
        if end.is_some() {
            self.unescaper.finish(out);
        }
        escape_marks(out, before);
        if end.is_some() {
            out.extend_from_slice(&END);
            self.is_inside = false;
        }
        end.map_or(piece.len(), |end| end + 1)
    }

    fn push_outside(&mut self, piece: &[u8], out: &mut Vec<u8>) -> usize {
        for (at, &byte) in piece.iter().enumerate() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.was_white = true,
                b'"' => {
                    out.push(byte);
                    (self.is_inside, self.was_word, self.was_white) = (true, false, false);
                    return at + 1;
                }
                _ => {
                    let is_word = !matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b':');
                    // Two words must not become one.
                    if is_word && self.was_word && self.was_white {
                        out.push(b' ');
                    }
                    out.push(byte);
                    (self.was_word, self.was_white) = (is_word, false);
                }
            }
        }
        piece.len()
    }
}

/// Escapes the bytes that would be taken for a mark.
fn escape_marks(out: &mut Vec<u8>, from: usize) {
    if memchr::memchr(MARK, &out[from..]).is_some() {
        let content = out.split_off(from);
        for byte in content {
            if byte == MARK { out.extend_from_slice(&ESCAPED_MARK) } else { out.push(byte) }
        }
    }
}

impl<P: Pieces> Pieces for Canonical<P> {
    fn pull(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let mut piece = std::mem::take(&mut self.piece);
        piece.clear();
        let is_more = self.input.pull(&mut piece)?;
        self.push(&piece, out);
        self.piece = piece;
        if !is_more && self.is_inside {
            self.unescaper.finish(out);
        }
        Ok(is_more)
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
