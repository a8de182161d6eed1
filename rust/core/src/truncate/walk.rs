//! One pass over the payload that validates what may be shown and skips the rest in 64-byte blocks.

use std::collections::HashSet;

use super::Limits;
use super::text;
use super::tree::{Container, ELLIPSIS, HIDDEN, Key, Node, Text, Tree, Value};
use crate::error::Result;
use crate::ndjson::{expect_end, is_first_line, lines};
use crate::pointer::unescape;
use crate::reader::{Kind, Reader, check_string};
use crate::scan::Isa;

/// A string of more bytes than this first appears short.
const LONG_STRING_BYTES: usize = 64;
/// Characters of a long string when it first appears.
const SHORT_STRING_CHARS: usize = 32;
/// A container that takes no more bytes than this appears whole: closed it would hardly be smaller, and say
/// less.
const SMALL_ARRAY_BYTES: usize = 64;
const SMALL_OBJECT_BYTES: usize = 32;
/// Bytes that are searched for the end of a small value, white space included.
const SMALL_WINDOW_BYTES: usize = 1024;
/// Keys and numbers of up to this many characters are not cut, whatever `max_string_chars` is.
const MIN_TOKEN_CHARS: usize = 64;

/// Records the parts of `data` that may be shown within `budget` bytes.
pub(super) fn walk(data: &[u8], limits: &Limits, budget: usize, isa: Isa) -> Result<Tree> {
    let start = || Walk { data, limits, isa, reader: Reader::new(data, isa), tree: Tree::new(budget) };
    let mut walk = start();
    walk.record_value(0, Position::ROOT)?;
    if is_first_line(&mut walk.reader, data, isa)? {
        walk = start();
        walk.record_lines()?;
    }
    Ok(walk.tree)
}

/// Position of a value in its container.
struct Position {
    key: Option<Key>,
    parent: usize,
    number: usize,
    is_repeat: bool,
}

impl Position {
    const ROOT: Self = Self { key: None, parent: 0, number: 0, is_repeat: false };

    fn are_children_repeats(&self) -> bool {
        self.is_repeat || (self.key.is_none() && self.number > 0)
    }
}

struct Walk<'a> {
    /// The payload; of NDJSON, up to the end of the current line.
    data: &'a [u8],
    limits: &'a Limits,
    isa: Isa,
    reader: Reader<'a>,
    tree: Tree,
}

impl Walk<'_> {
    /// Records the next value, and as much of its contents as may be shown.
    fn record_value(&mut self, depth: usize, position: Position) -> Result<()> {
        let kind = self.reader.kind()?;
        let value = match kind {
            _ if depth > self.limits.max_depth => match self.take_small(depth, HIDDEN.len()) {
                Some(small) => small,
                None => {
                    self.reader.skip()?;
                    Value::Hidden
                }
            },
            Kind::Array | Kind::Object => {
                let is_array = kind == Kind::Array;
                let max_bytes = if is_array { SMALL_ARRAY_BYTES } else { SMALL_OBJECT_BYTES };
                let Some(small) = self.take_small(depth, max_bytes) else {
                    return self.record_container(depth, position, is_array);
                };
                small
            }
            Kind::String => Value::Text(self.take_string()?),
            Kind::Number | Kind::Bool | Kind::Null => {
                let span = self.reader.take_scalar()?;
                let size = span.len();
                let is_long = size > self.limits.max_string_chars.max(MIN_TOKEN_CHARS);
                if is_long { Value::Hidden } else { Value::Whole { span, size } }
            }
        };
        self.add(depth, position, value);
        Ok(())
    }

    fn add(&mut self, depth: usize, position: Position, value: Value) -> usize {
        let Position { key, parent, number, is_repeat } = position;
        self.tree.add(depth, Node { key, parent, number, is_repeat, value })
    }

    fn record_container(&mut self, depth: usize, position: Position, is_array: bool) -> Result<()> {
        let is_repeat = position.are_children_repeats();
        let parent = self.add(depth, position, Value::Container(Container::new(is_array)));
        let first = self.tree.width(depth + 1);
        self.reader.open();
        let (recorded, total) = if is_array {
            self.record_items(depth + 1, parent, is_repeat)?
        } else {
            self.record_members(depth + 1, parent, is_repeat)?
        };
        self.tree.close(depth, parent, first..first + recorded, total);
        Ok(())
    }

    /// Records items up to the limit. Returns how many were recorded, and how many there are.
    fn record_items(&mut self, depth: usize, parent: usize, is_repeat: bool) -> Result<(usize, usize)> {
        let mut number = 0;
        while number < self.limits.max_array_items && self.tree.admits(depth, is_repeat, number) {
            if !self.reader.next_item(number == 0)? {
                return Ok((number, number));
            }
            self.record_value(depth, Position { key: None, parent, number, is_repeat })?;
            number += 1;
        }
        Ok((number, number + self.count_rest(number, b']')?))
    }

    /// Records members up to the limit. Returns how many were recorded, and how many there are.
    ///
    /// Of keys that are cut to the same text only the first is recorded: a parser would silently drop all but
    /// one.
    fn record_members(&mut self, depth: usize, parent: usize, is_repeat: bool) -> Result<(usize, usize)> {
        let data = self.data;
        let max_chars = self.limits.max_string_chars.max(MIN_TOKEN_CHARS);
        let (mut number, mut skipped) = (0, 0);
        let mut marker = ELLIPSIS.len();
        let mut cut_keys = HashSet::new();
        while number < self.limits.max_object_keys && self.tree.admits(depth, is_repeat, number) {
            let Some(content) = self.reader.next_key(number == 0)? else {
                return Ok((number, number + skipped));
            };
            let shown = text::floor(&data[content.clone()], max_chars, usize::MAX);
            // Keys with a lone surrogate are not text, and count as the same.
            if shown < content.len() && !cut_keys.insert(unescape(&data[content.start..][..shown])) {
                self.reader.skip()?;
                skipped += 1;
                continue;
            }
            let text = Text { content, first: shown, shown, growth: 0 };
            marker = marker.max(text.dots(data).map_or(0, |dots| dots + 1));
            let key = Some(Key { text, marker });
            self.record_value(depth, Position { key, parent, number, is_repeat })?;
            number += 1;
        }
        Ok((number, number + skipped + self.count_rest(number, b'}')?))
    }

    /// Skips the rest of a container of which `number` children were read, and counts its other children.
    fn count_rest(&mut self, number: usize, close: u8) -> Result<usize> {
        if number == 0 && self.reader.take(close)? {
            return Ok(0);
        }
        Ok(usize::from(number == 0) + self.reader.skip_rest()? as usize)
    }

    /// Records the values of NDJSON as the items of an array.
    fn record_lines(&mut self) -> Result<()> {
        let root = self.add(0, Position::ROOT, Value::Container(Container::new(true)));
        let (mut recorded, mut total) = (0, 0);
        let payload = self.data;
        for line in lines(payload) {
            self.data = &payload[..line.end];
            self.reader = Reader::at(self.data, line.start, self.isa);
            if total < self.limits.max_array_items && self.tree.admits(1, false, total) {
                self.record_value(1, Position { key: None, parent: root, number: total, is_repeat: false })?;
                recorded += 1;
            } else {
                self.reader.skip()?;
            }
            expect_end(&mut self.reader)?;
            total += 1;
        }
        self.tree.close(0, root, 0..recorded, total);
        Ok(())
    }

    fn take_string(&mut self) -> Result<Text> {
        let span = self.reader.skip()?;
        let content = span.start + 1..span.end - 1;
        let bytes = &self.data[content.clone()];
        let max_chars = self.limits.max_string_chars;
        let is_short = bytes.len() > LONG_STRING_BYTES && max_chars > SHORT_STRING_CHARS;
        let first = text::floor(bytes, if is_short { SHORT_STRING_CHARS } else { max_chars }, usize::MAX);
        check_string(self.data, content.start..content.start + first)?;
        // A character is at least a byte, so at least this much is shown in the end.
        let grown = bytes.len().min(max_chars).max(first + 1);
        let growth = if is_short && first < bytes.len() { grown - first } else { 0 };
        Ok(Text { content, first, shown: first, growth })
    }

    /// Takes the next value if it has at most `max_bytes` without white space, and nothing in it exceeds a
    /// limit.
    fn take_small(&mut self, depth: usize, max_bytes: usize) -> Option<Value> {
        let start = self.reader.pos();
        let window = &self.data[..self.data.len().min(start + SMALL_WINDOW_BYTES)];
        let mut reader = self.reader.within(window);
        let size = self.size_within(&mut reader, depth, max_bytes)?;
        let span = start..reader.pos();
        self.reader.jump(span.end);
        Some(Value::Whole { span, size })
    }

    /// Returns the size of the next value without white space, if that is at most `max_bytes` and within all
    /// limits. A value that is too deep is within them if the marker in its place would not be shorter.
    fn size_within(&self, reader: &mut Reader<'_>, depth: usize, max_bytes: usize) -> Option<usize> {
        let max_bytes = if depth > self.limits.max_depth { max_bytes.min(HIDDEN.len()) } else { max_bytes };
        let mut size = 2;
        match reader.kind().ok()? {
            Kind::Array => {
                reader.open();
                let mut count = 0;
                while reader.next_item(count == 0).ok()? {
                    size += usize::from(count > 0);
                    size += self.size_within(reader, depth + 1, max_bytes.checked_sub(size)?)?;
                    count += 1;
                    if count > self.limits.max_array_items {
                        return None;
                    }
                }
            }
            Kind::Object => {
                reader.open();
                let mut count = 0;
                while let Some(key) = reader.next_key(count == 0).ok()? {
                    size += usize::from(count > 0) + key.len() + 3;
                    size += self.size_within(reader, depth + 1, max_bytes.checked_sub(size)?)?;
                    count += 1;
                    if count > self.limits.max_object_keys {
                        return None;
                    }
                }
            }
            Kind::String => {
                let content = reader.take_string().ok()?;
                size += content.len();
                let chars = self.limits.max_string_chars;
                if text::floor(self.data.get(content.clone())?, chars, usize::MAX) < content.len() {
                    return None;
                }
            }
            Kind::Number | Kind::Bool | Kind::Null => size = reader.take_scalar().ok()?.len(),
        }
        (size <= max_bytes).then_some(size)
    }
}
