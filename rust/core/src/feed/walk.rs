//! Walks through values of JSON: notes their shapes, and what must be changed before DuckDB can read them.

use super::clean::{MAX_DEPTH, key_bytes, may_have_surrogates, push_last_members, push_without_surrogates};
use super::number::Numbers;
use super::selection::Selection;
use super::shape::{Members, Shape};
use crate::error::Result;
use crate::escaping::push_string;
use crate::reader::{Kind, Reader, is_number};
use crate::scan::Isa;
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

/// Maximum depth at which values have types. What is deeper is JSON.
const MAX_TYPED_DEPTH: usize = 16;

/// Traits of a value that matter for how it is written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traits {
    /// A string may have a lone surrogate.
    has_surrogates: bool,
    /// An object has a key twice.
    has_repeated_keys: bool,
    /// DuckDB's JSON reader would change or refuse it: a number that a double does not hold, or deep nesting.
    pub(super) needs_text: bool,
    pub(super) is_null: bool,
}

/// State of a walk that continues from value to value.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Number of objects seen, which numbers them.
    pub(super) objects: u64,
    pub(super) shapes: usize,
}

pub(super) struct Walk<'a, 'c> {
    pub(super) data: &'a [u8],
    pub(super) reader: Reader<'a>,
    pub(super) counters: &'c mut Counters,
    pub(super) traits: Traits,
}

impl<'a> Walk<'a, '_> {
    /// Takes the next value and adds it to a shape.
    pub(super) fn value(&mut self, shape: Option<&mut Shape>, depth: usize) -> Result<Range<usize>> {
        let kind = self.reader.kind()?;
        let start = self.reader.pos();
        match kind {
            Kind::Object | Kind::Array if depth > MAX_DEPTH => {
                self.reader.skip()?;
                self.traits.needs_text = true;
                // Only a whole scan could tell.
                self.traits.has_surrogates = true;
                if let Some(shape) = shape {
                    shape.add_deep_object();
                }
            }
            Kind::Object => self.object(shape, depth)?,
            Kind::Array => {
                self.reader.open();
                let mut items = match shape {
                    Some(shape) if depth > MAX_TYPED_DEPTH => {
                        shape.add_deep_object();
                        None
                    }
                    shape => shape.map(Shape::add_array),
                };
                let mut is_first = true;
                while self.reader.next_item(is_first)? {
                    is_first = false;
                    self.value(items.as_deref_mut(), depth + 1)?;
                }
            }
            Kind::String => {
                let span = self.reader.skip()?;
                self.traits.has_surrogates |= may_have_surrogates(&self.data[span]);
                if let Some(shape) = shape {
                    shape.add_text();
                }
            }
            Kind::Number => {
                let span = self.reader.skip()?;
                let mut numbers = Numbers::default();
                numbers.add(&self.data[span]);
                self.traits.needs_text |= numbers.has_long_floats();
                if let Some(shape) = shape {
                    shape.add_number(numbers);
                }
            }
            Kind::Bool => {
                self.reader.skip()?;
                if let Some(shape) = shape {
                    shape.add_bool();
                }
            }
            Kind::Null => {
                self.reader.skip()?;
                self.traits.is_null = depth == 1;
            }
        }
        Ok(start..self.reader.pos())
    }

    fn object(&mut self, shape: Option<&mut Shape>, depth: usize) -> Result<()> {
        self.reader.open();
        let members = match shape {
            Some(shape) if depth > MAX_TYPED_DEPTH => {
                shape.add_deep_object();
                None
            }
            shape => shape.and_then(Shape::add_object),
        };
        match members {
            Some(members) => self.members(members, depth),
            None => self.untyped_members(depth, true),
        }
    }

    fn members(&mut self, members: &mut Members, depth: usize) -> Result<()> {
        self.counters.objects += 1;
        let object = self.counters.objects;
        let (mut is_first, mut expected) = (true, 0);
        while next_member(&mut self.reader, is_first)? {
            is_first = false;
            let known = members.get(expected).is_some_and(|member| self.reader.take_all(&member.key));
            let at = if known {
                Some(expected)
            } else {
                let name = take_key(&mut self.reader)?;
                let name = self.key(name);
                members.find_or_add(&name, &mut self.counters.shapes)
            };
            let Some(at) = at else {
                // The shapes of this object are gone, and with them the record of its keys.
                self.traits.has_repeated_keys = true;
                self.value(None, depth + 1)?;
                return self.untyped_members(depth, false);
            };
            expected = at + 1;
            let Some(member) = members.get(at) else { continue };
            self.traits.has_repeated_keys |= member.object == object;
            member.object = object;
            self.value(Some(&mut member.shape), depth + 1)?;
        }
        Ok(())
    }

    /// Takes the rest of an object that has no shapes.
    fn untyped_members(&mut self, depth: usize, mut is_first: bool) -> Result<()> {
        let mut names: HashSet<Vec<u8>> = HashSet::new();
        while next_member(&mut self.reader, is_first)? {
            is_first = false;
            let key = take_key(&mut self.reader)?;
            let name = self.key(key);
            self.traits.has_repeated_keys |= !names.insert(name.into_owned());
            self.value(None, depth + 1)?;
        }
        Ok(())
    }

    /// Returns a key without escapes.
    fn key(&mut self, key: Range<usize>) -> Cow<'a, [u8]> {
        let raw = &self.data[key];
        self.traits.has_surrogates |= may_have_surrogates(raw);
        key_bytes(raw)
    }

    /// Takes a cell of a row, which is a string, and adds the number that it may be to a shape.
    pub(super) fn cell(&mut self, shape: &mut Shape) -> Result<Range<usize>> {
        let span = self.reader.skip()?;
        let text = span.len().checked_sub(2).map_or(&[][..], |_| &self.data[span.start + 1..span.end - 1]);
        if is_number(text) {
            let mut numbers = Numbers::default();
            numbers.add(text);
            shape.add_number(numbers);
        } else if !text.is_empty() {
            self.traits.has_surrogates |= may_have_surrogates(text);
            shape.add_text();
        }
        Ok(span)
    }
}

/// Moves to the next key of an object, past the comma. After the last one, takes the closing brace and returns `false`.
#[inline]
pub(super) fn next_member(reader: &mut Reader<'_>, is_first: bool) -> Result<bool> {
    if reader.take(b'}')? {
        return Ok(false);
    }
    if !is_first {
        if !reader.take(b',')? {
            return Err(reader.fail("expected a comma or a closing brace"));
        }
        reader.peek()?;
    }
    Ok(true)
}

/// Takes a key and its colon, without validation. The span is the raw key between its quotes.
pub(super) fn take_key(reader: &mut Reader<'_>) -> Result<Range<usize>> {
    if reader.peek()? != b'"' {
        return Err(reader.fail("expected a key"));
    }
    let key = reader.skip()?;
    if !reader.take(b':')? {
        return Err(reader.fail("expected a colon"));
    }
    Ok(key.start + 1..key.end - 1)
}

/// Returns how a key is usually written, with its colon. A key with escapes is not predicted: no JSON has a NUL.
pub(super) fn usual_key(name: &[u8]) -> Box<[u8]> {
    let is_plain = name.iter().all(|&byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
    if is_plain { [b"\"", name, b"\":"].concat().into() } else { Box::from(&b"\0"[..]) }
}

impl Traits {
    /// Appends the selected members of a value in a form that DuckDB can read: on one line, and as a string if
    /// `as_text`.
    pub(super) fn push_value(
        self,
        isa: Isa,
        value: &[u8],
        selection: Option<&Selection>,
        as_text: bool,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        let mut unique = Vec::new();
        let value = if self.has_repeated_keys {
            push_last_members(isa, value, &mut unique)?;
            &unique
        } else {
            value
        };
        match selection {
            Some(selection) => selection.push_value(isa, value, out)?,
            None => out.extend_from_slice(value),
        }
        if self.has_surrogates {
            let cleaned = out.split_off(start);
            push_without_surrogates(&cleaned, out);
        }
        // Only white space between the tokens of a container can be a line break.
        if matches!(value.first(), Some(b'{' | b'[')) {
            for byte in &mut out[start..] {
                if matches!(byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
        }
        if as_text {
            let text = out.split_off(start);
            push_string(&text, out);
        }
        Ok(())
    }
}
