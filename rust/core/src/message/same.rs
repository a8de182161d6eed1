//! Whether two parts of a message say the same, read side by side.

use std::io::{BufRead, Read};
use std::ops::Range;

use super::minified::Minified;
use super::scanner::{Scanner, string_end};
use super::source::{Reader, Source, Value};
use super::unescape::Unescaper;
use crate::error::{Error, Result};
use crate::scan::Isa;

/// How much of each side is looked at at once.
const PIECE: usize = 64 * 1024;

/// What is worth a look before it is read token by token.
const LONG: u64 = 512;

/// The longest key that anyone looks for here, quotes included.
const MOST_KEY: usize = 16;

/// Whether what the string `text` stands for is the value: the same text, or JSON that is the value to the letter.
pub fn says(text: &Value<'_>, value: &Value<'_>) -> Result<bool> {
    // Where there are many of them, most are small: a file is asked for each once.
    if let (Some(one), Some(other)) = (text.read_if_small()?, value.read_if_small()?) {
        let (text, value) = (Source::Memory(&one), Source::Memory(&other));
        let (text, value) = (Value::all(&text, &one), Value::all(&value, &other));
        return Ok(same_text(&text, &value)? || same_json(&text, &value)?);
    }
    Ok(same_text(text, value)? || same_json(text, value)?)
}

/// Whether two values are strings that stand for the same text.
pub fn same_text(one: &Value<'_>, other: &Value<'_>) -> Result<bool> {
    if !one.is_string()? || !other.is_string()? {
        return Ok(false);
    }
    if one.len() == other.len() && are_same(&mut Bytes::of(one)?, &mut Bytes::of(other)?)? {
        return Ok(true);
    }
    are_same(&mut Text::of(one)?, &mut Text::of(other)?)
}

/// Whether what the string `text` stands for is JSON, and the value to the letter: but for white space between
/// tokens, and for which characters in strings are escaped.
pub fn same_json(text: &Value<'_>, value: &Value<'_>) -> Result<bool> {
    if !text.is_string()? {
        return Ok(false);
    }
    // Most strings are written alike, and white space is all that they differ in.
    if value.len() >= LONG && is_minified_alike(text, value)? {
        return Ok(true);
    }
    are_same(&mut Canonical::new(Text::of(text)?), &mut Canonical::new(Bytes::of(value)?))
}

/// Whether they surely are the same; if not, that is yet to be seen.
fn is_minified_alike(text: &Value<'_>, value: &Value<'_>) -> Result<bool> {
    let isa = Isa::detect();
    let (mut said, mut meant) = (Minified::new(Text::of(text)?, isa), Minified::new(Bytes::of(value)?, isa));
    let is_same = are_same(&mut said, &mut meant)?;
    Ok(is_same && !said.is_unsure && !meant.is_unsure)
}

/// Whether `content` is an array of `{"type": "text", "text": …}`, with nothing else in them, `items` one of as many
/// values, and each text says its item.
pub fn each_says(content: &Value<'_>, items: &Value<'_>) -> Result<bool> {
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
        if !says(&content.part(&text), &items.part(&item))? {
            return Ok(false);
        }
    }
}

/// Where the value of an object's only member is, if that is called `name`.
pub fn only_member(object: &Value<'_>, name: &str) -> Result<Option<Range<u64>>> {
    let mut scanner = object.scanner()?;
    if !scanner.take_if(b'{')? || key(&mut scanner)?.as_deref() != Some(name.as_bytes()) {
        return Ok(None);
    }
    let span = object.part(&scanner.skip()?).span;
    Ok(scanner.take_if(b'}')?.then_some(span))
}

impl<'a> Value<'a> {
    fn all(source: &'a Source<'a>, data: &[u8]) -> Self {
        Self { source, span: 0..data.len() as u64 }
    }

    /// A small value that is in a file.
    fn read_if_small(&self) -> Result<Option<Vec<u8>>> {
        if matches!(self.source, Source::Memory(_)) || self.len() > PIECE as u64 {
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

    /// A value inside of this one.
    pub(super) fn part(&self, span: &Range<u64>) -> Self {
        let start = self.span.start;
        Self { source: self.source, span: start + span.start..start + span.end }
    }
}

/// Moves to the next item of an array; `false` once its bracket was taken.
fn next_item<R: BufRead>(scanner: &mut Scanner<R>, is_first: bool) -> Result<bool> {
    if scanner.take_if(b']')? {
        return Ok(false);
    }
    if !is_first && !scanner.take_if(b',')? {
        return Err(scanner.fail("expected a comma or a closing bracket"));
    }
    Ok(true)
}

/// The text of a block that has nothing else.
fn bare_text<R: BufRead>(scanner: &mut Scanner<R>) -> Result<Option<Range<u64>>> {
    let (mut text, mut has_type) = (None, false);
    for opening in [b'{', b','] {
        if !scanner.take_if(opening)? {
            return Ok(None);
        }
        match key(scanner)?.as_deref() {
            Some(b"text") if scanner.peek()? == b'"' => text = Some(scanner.skip()?),
            Some(b"type") if scanner.peek()? == b'"' => {
                let mut kind = Vec::new();
                scanner.string(&mut kind, MOST_KEY)?;
                has_type = kind == b"\"text\"";
            }
            _ => return Ok(None),
        }
    }
    Ok(if scanner.take_if(b'}')? && has_type { text } else { None })
}

/// Takes a key and its colon; `None` if there is none, or a long one.
fn key<R: BufRead>(scanner: &mut Scanner<R>) -> Result<Option<Vec<u8>>> {
    if scanner.peek()? != b'"' {
        return Ok(None);
    }
    let mut key = Vec::new();
    scanner.string(&mut key, MOST_KEY)?;
    if !scanner.take_if(b':')? {
        return Err(scanner.fail("expected a colon"));
    }
    Ok(key.strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\"")).map(<[u8]>::to_vec))
}

/// Bytes that come in pieces of any size.
pub(super) trait Pieces {
    /// Appends the next piece, which may be empty; `false` if there is none.
    fn pull(&mut self, out: &mut Vec<u8>) -> Result<bool>;
}

fn are_same(one: &mut impl Pieces, other: &mut impl Pieces) -> Result<bool> {
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    loop {
        let has_one = fill(one, &mut ones)?;
        let has_other = fill(other, &mut others)?;
        if !has_one || !has_other {
            return Ok(has_one == has_other);
        }
        let count = ones.len().min(others.len());
        if ones[..count] != others[..count] {
            return Ok(false);
        }
        ones.drain(..count);
        others.drain(..count);
    }
}

/// Pulls until there is something; `false` if there is nothing more.
fn fill(pieces: &mut impl Pieces, out: &mut Vec<u8>) -> Result<bool> {
    while out.is_empty() {
        if !pieces.pull(out)? {
            return Ok(!out.is_empty());
        }
    }
    Ok(true)
}

/// A value as it stands.
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

/// Hands on the next piece, if there is one.
fn pull_from(reader: &mut Reader<'_>, hand_on: impl FnOnce(&[u8])) -> Result<bool> {
    let piece = reader.fill_buf().map_err(|error| Error::unreadable(&error))?;
    let piece = &piece[..piece.len().min(PIECE)];
    let count = piece.len();
    hand_on(piece);
    reader.consume(count);
    Ok(count > 0)
}

/// What a string stands for.
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

/// JSON in the one way that is the same for all who write the same tokens: no white space, and strings as what they
/// stand for. Where a string ends, and a byte that no text has, are two bytes each, so that none is another one.
struct Canonical<P> {
    written: P,
    piece: Vec<u8>,
    is_inside: bool,
    is_escaped: bool,
    unescaper: Unescaper,
    /// Whether the last byte was of a number or a word, and whether there was white space behind it.
    was_word: bool,
    was_white: bool,
    isa: Isa,
}

const MARK: u8 = 0xff;
const END: [u8; 2] = [MARK, 0];
const MARK_ITSELF: [u8; 2] = [MARK, 1];

impl<P> Canonical<P> {
    fn new(written: P) -> Self {
        Self {
            written,
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
            let taken = if self.is_inside { self.inside(piece, out) } else { self.outside(piece, out) };
            piece = &piece[taken..];
        }
    }

    fn inside(&mut self, piece: &[u8], out: &mut Vec<u8>) -> usize {
        let end = string_end(self.isa, piece, &mut self.is_escaped);
        let before = out.len();
        self.unescaper.push(&piece[..end.unwrap_or(piece.len())], out);
        if end.is_some() {
            self.unescaper.finish(out);
        }
        mark(out, before);
        if end.is_some() {
            out.extend_from_slice(&END);
            self.is_inside = false;
        }
        end.map_or(piece.len(), |end| end + 1)
    }

    fn outside(&mut self, piece: &[u8], out: &mut Vec<u8>) -> usize {
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
                    // Two words do not become one.
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

/// Doubles what would be taken for a mark.
fn mark(out: &mut Vec<u8>, from: usize) {
    if memchr::memchr(MARK, &out[from..]).is_some() {
        let content = out.split_off(from);
        for byte in content {
            if byte == MARK { out.extend_from_slice(&MARK_ITSELF) } else { out.push(byte) }
        }
    }
}

impl<P: Pieces> Pieces for Canonical<P> {
    fn pull(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let mut piece = std::mem::take(&mut self.piece);
        piece.clear();
        let is_more = self.written.pull(&mut piece)?;
        self.push(&piece, out);
        self.piece = piece;
        if !is_more && self.is_inside {
            self.unescaper.finish(out);
        }
        Ok(is_more)
    }
}

#[cfg(test)]
#[path = "same_tests.rs"]
mod tests;
