//! JSON Pointers of the values that matches are in.

use std::ops::Range;

use crate::csv::Columns;
use crate::index::{ItemIndex, Kind};
use crate::pointer::{Pointer, push_key, push_token};
use crate::reader::Reader;
use crate::scan::Isa;
use crate::survey::BYTE_ORDER_MARK;

/// Bytes that the pointers of one page may cost to find. Matches beyond them have none.
const MAX_WALK_BYTES: usize = if cfg!(test) { 1 << 15 } else { 16 << 20 };

/// Levels of nesting that are followed.
const MAX_DEPTH: usize = 256;

/// Maximum length of a pointer: a key may be as long as the payload.
const MAX_POINTER_BYTES: usize = 1024;

/// Finds the JSON Pointers of ascending offsets in JSON, NDJSON or rows.
pub(super) struct Pointers<'a> {
    data: &'a [u8],
    index: Option<&'a ItemIndex>,
    columns: Option<Columns>,
    /// The walk that reached the last offset, and the part of the payload it began in.
    walk: Option<(Part, Walk<'a>)>,
    remaining_bytes: usize,
}

/// Parts of a payload at whose start the path is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Start,
    Item(u64),
    AfterItems,
}

impl<'a> Pointers<'a> {
    pub(super) fn new(data: &'a [u8], index: Option<&'a ItemIndex>) -> Self {
        let columns = index.and_then(ItemIndex::columns);
        Self { data, index, columns, walk: None, remaining_bytes: MAX_WALK_BYTES }
    }

    /// Returns the pointer of the innermost value or member that the byte at `offset` belongs to. `item` is the item it
    /// is in, by its number and bytes.
    ///
    /// A comma belongs to what is before it. `None` if that is outside of all values, or would cost too much to find.
    pub(super) fn at(&mut self, offset: usize, item: Option<(u64, &Range<usize>)>) -> Option<String> {
        if let Some(columns) = &self.columns {
            let (number, row) = item?;
            let mut pointer = format!("/{number}");
            if offset < row.end {
                let name = columns.name_at(self.data.get(row.clone())?, offset.checked_sub(row.start)?)?;
                push_key(&mut pointer, &name);
            }
            return Some(pointer).filter(|pointer| pointer.len() <= MAX_POINTER_BYTES);
        }
        let part = match (item, self.index) {
            (Some((number, _)), _) => Part::Item(number),
            (None, Some(index)) if offset as u64 >= index.end() && is_below_keys(index) => Part::AfterItems,
            (None, _) => Part::Start,
        };
        if self.walk.as_ref().is_none_or(|(begun, _)| *begun != part) {
            self.walk = Some((part, self.begin(part, item.map(|(_, span)| span.start))));
        }
        let (_, walk) = self.walk.as_mut()?;
        // A string is read once, however many matches are in it.
        let reach = if walk.scalar.contains(&offset) { 0 } else { offset.saturating_sub(walk.pos) };
        self.remaining_bytes = self.remaining_bytes.checked_sub(reach)?;
        walk.advance(offset)?;
        walk.pointer()
    }

    fn begin(&self, part: Part, item_start: Option<usize>) -> Walk<'a> {
        let (data, isa) = (self.data, Isa::detect());
        let path = || self.index.and_then(ItemIndex::path).unwrap_or_default().to_owned();
        match part {
            Part::Start => {
                let pos = if data.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
                Walk { data, isa, pos, scalar: 0..0, base: String::new(), levels: Vec::new() }
            }
            Part::Item(number) => {
                let pos = item_start.unwrap_or(data.len());
                let is_map = self.index.is_some_and(ItemIndex::is_map);
                let level = if is_map { Level::Object(Key::None) } else { Level::Array(number) };
                Walk { data, isa, pos, scalar: 0..0, base: path(), levels: vec![level] }
            }
            Part::AfterItems => {
                let tokens = path().split('/').skip(1).map(str::to_owned).collect::<Vec<_>>();
                let pos =
                    self.index.and_then(|index| usize::try_from(index.end()).ok()).unwrap_or(data.len());
                let levels = tokens.into_iter().map(|token| Level::Object(Key::Token(token))).collect();
                Walk { data, isa, pos, scalar: 0..0, base: String::new(), levels }
            }
        }
    }
}

/// Whether the path of the items certainly consists of keys: a number may be that of an item of an array.
fn is_below_keys(index: &ItemIndex) -> bool {
    let pointer = index.path().and_then(|path| Pointer::parse(path).ok());
    matches!(index.kind(), Some(Kind::Array | Kind::Map))
        && pointer.is_some_and(|pointer| pointer.tokens().iter().all(|token| token.index().is_none()))
}

/// An open container, and where in it the walk is.
enum Level {
    /// The number of the current value.
    Array(u64),
    Object(Key),
}

enum Key {
    /// Before the first key, or after a comma.
    None,
    /// The raw key, without its quotes.
    Span(Range<usize>),
    /// A token of a pointer.
    Token(String),
}

/// A walk through JSON, token by token.
struct Walk<'a> {
    data: &'a [u8],
    isa: Isa,
    /// The next token.
    pos: usize,
    /// The string, number or literal that was read last.
    scalar: Range<usize>,
    /// Pointer of the value that the first level is.
    base: String,
    levels: Vec<Level>,
}

impl Walk<'_> {
    /// Moves to the token that holds `offset`. Fails beyond the value that the walk began in, on what is not JSON and on
    /// deep nesting.
    fn advance(&mut self, offset: usize) -> Option<()> {
        while self.pos < offset {
            let end = match *self.data.get(self.pos)? {
                b'{' | b'[' if self.levels.len() == MAX_DEPTH => return None,
                b'{' => {
                    self.levels.push(Level::Object(Key::None));
                    self.pos + 1
                }
                b'[' => {
                    self.levels.push(Level::Array(0));
                    self.pos + 1
                }
                b'}' | b']' => {
                    self.levels.pop()?;
                    self.pos + 1
                }
                b',' => {
                    match self.levels.last_mut()? {
                        Level::Array(number) => *number += 1,
                        Level::Object(key) => *key = Key::None,
                    }
                    self.pos + 1
                }
                b':' | b' ' | b'\t' | b'\n' | b'\r' => self.pos + 1,
                _ => self.take_scalar()?,
            };
            // The token that holds the offset is not passed: a later offset may be in it, too.
            if end > offset {
                return Some(());
            }
            self.pos = end;
        }
        if self.data.get(self.pos) == Some(&b'"') {
            self.take_scalar()?;
        }
        Some(())
    }

    /// Returns the end of a string, number or literal. A string in the place of a key becomes the key.
    fn take_scalar(&mut self) -> Option<usize> {
        if self.scalar.start != self.pos || self.scalar.is_empty() {
            let is_text = self.data.get(self.pos) == Some(&b'"');
            self.scalar = match Reader::at(self.data, self.pos, self.isa).skip() {
                Ok(span) => span,
                // The data may be the first part of a payload.
                Err(_) if is_text => self.pos..self.data.len(),
                Err(_) => return None,
            };
            if let Some(Level::Object(key @ Key::None)) = self.levels.last_mut()
                && is_text
            {
                *key = Key::Span(self.scalar.start + 1..self.scalar.end.saturating_sub(1));
            }
        }
        Some(self.scalar.end)
    }

    /// Returns the pointer of the current token.
    fn pointer(&self) -> Option<String> {
        let is_closing = matches!(self.data.get(self.pos), Some(b'}' | b']'));
        let levels = if is_closing { self.levels.split_last()?.1 } else { &self.levels[..] };
        let mut pointer = self.base.clone();
        for level in levels {
            match level {
                Level::Array(number) => pointer.push_str(&format!("/{number}")),
                Level::Object(Key::None) => {}
                Level::Object(Key::Span(span)) => {
                    if span.len() > MAX_POINTER_BYTES
                        || !push_token(&mut pointer, self.data.get(span.clone())?)
                    {
                        return None;
                    }
                }
                Level::Object(Key::Token(token)) => {
                    pointer.push('/');
                    pointer.push_str(token);
                }
            }
            if pointer.len() > MAX_POINTER_BYTES {
                return None;
            }
        }
        Some(pointer)
    }
}

#[cfg(test)]
#[path = "pointers_tests.rs"]
mod tests;
