//! One pass over the payload: strict through what may be shown, in 64-byte blocks over the rest.

use std::collections::HashSet;

use super::Limits;
use super::text;
use super::tree::{Container, ELLIPSIS, Key, Node, Text, Tree, Value};
use crate::error::Result;
use crate::ndjson::{expect_end, is_first_line, lines};
use crate::pointer::unescape;
use crate::reader::{Kind, Reader, check_string};
use crate::scan::Isa;

/// A string of more bytes than this first appears with so many characters.
const SHORT_STRING: (usize, usize) = (64, 32);
/// A container appears whole if it takes no more than this: hardly more than it would closed, which says less.
const SMALL_ARRAY: usize = 64;
const SMALL_OBJECT: usize = 32;
/// How far to look for the end of a small container, white space included.
const SMALL_WINDOW: usize = 1024;
/// Keys and numbers are not cut below this, however short strings are to be.
const LONG_TOKEN: usize = 64;

/// Records what of `data` may be shown within `budget` bytes.
pub(super) fn walk(data: &[u8], limits: &Limits, budget: usize, isa: Isa) -> Result<Tree> {
    let start = || Walk { data, limits, isa, reader: Reader::new(data, isa), tree: Tree::new(budget) };
    let mut walk = start();
    walk.value(0, Position::ROOT)?;
    if is_first_line(&mut walk.reader, data, isa)? {
        walk = start();
        walk.lines()?;
    }
    Ok(walk.tree)
}

/// Where a value stands in its container.
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
    /// The payload, up to the end of the line where it is NDJSON.
    data: &'a [u8],
    limits: &'a Limits,
    isa: Isa,
    reader: Reader<'a>,
    tree: Tree,
}

impl Walk<'_> {
    /// Records the next value, and of what is inside as much as may be shown.
    fn value(&mut self, depth: usize, position: Position) -> Result<()> {
        let kind = self.reader.kind()?;
        if depth > self.limits.max_depth {
            self.reader.skip()?;
            self.add(depth, position, Value::Hidden);
            return Ok(());
        }
        let value = match kind {
            Kind::Array | Kind::Object => {
                let Some(small) = self.small(depth, kind) else {
                    return self.container(depth, position, kind == Kind::Array);
                };
                small
            }
            Kind::String => Value::Text(self.string()?),
            Kind::Number | Kind::Bool | Kind::Null => {
                let span = self.reader.scalar()?;
                let size = span.len();
                let is_long = size > self.limits.max_string_chars.max(LONG_TOKEN);
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

    fn container(&mut self, depth: usize, position: Position, is_array: bool) -> Result<()> {
        let is_repeat = position.are_children_repeats();
        let parent = self.add(depth, position, Value::Container(Container::new(is_array)));
        let first = self.tree.width(depth + 1);
        self.reader.open();
        let (recorded, total) = if is_array {
            self.items(depth + 1, parent, is_repeat)?
        } else {
            self.members(depth + 1, parent, is_repeat)?
        };
        self.tree.close(depth, parent, first..first + recorded, total);
        Ok(())
    }

    /// Records items up to the limit. Returns how many, and how many there are.
    fn items(&mut self, depth: usize, parent: usize, is_repeat: bool) -> Result<(usize, usize)> {
        let mut number = 0;
        while number < self.limits.max_array_items && self.tree.admits(depth, is_repeat, number) {
            if !self.reader.next_item(number == 0)? {
                return Ok((number, number));
            }
            self.value(depth, Position { key: None, parent, number, is_repeat })?;
            number += 1;
        }
        Ok((number, number + self.count_rest(number, b']')?))
    }

    /// Records members up to the limit. Returns how many, and how many there are.
    ///
    /// Of keys that are cut to the same the first is recorded: a parser would drop all but one without a word.
    fn members(&mut self, depth: usize, parent: usize, is_repeat: bool) -> Result<(usize, usize)> {
        let data = self.data;
        let most = self.limits.max_string_chars.max(LONG_TOKEN);
        let (mut number, mut passed) = (0, 0);
        let mut marker = ELLIPSIS.len();
        let mut cut_keys = HashSet::new();
        while number < self.limits.max_object_keys && self.tree.admits(depth, is_repeat, number) {
            let Some(content) = self.reader.next_key(number == 0)? else {
                return Ok((number, number + passed));
            };
            let shown = text::floor(&data[content.clone()], most, usize::MAX);
            // Those with half a surrogate pair are no text, and count as the same.
            if shown < content.len() && !cut_keys.insert(unescape(&data[content.start..][..shown])) {
                self.reader.skip()?;
                passed += 1;
                continue;
            }
            let text = Text { content, first: shown, shown, growth: 0 };
            marker = marker.max(text.dots(data).map_or(0, |dots| dots + 1));
            let key = Some(Key { text, marker });
            self.value(depth, Position { key, parent, number, is_repeat })?;
            number += 1;
        }
        Ok((number, number + passed + self.count_rest(number, b'}')?))
    }

    /// Passes over what is left of a container of which `number` children were read.
    fn count_rest(&mut self, number: usize, close: u8) -> Result<usize> {
        if number == 0 && self.reader.take(close)? {
            return Ok(0);
        }
        Ok(usize::from(number == 0) + self.reader.skip_rest()? as usize)
    }

    /// Records the values of NDJSON as the items of an array around them.
    fn lines(&mut self) -> Result<()> {
        let root = self.add(0, Position::ROOT, Value::Container(Container::new(true)));
        let (mut recorded, mut total) = (0, 0);
        let payload = self.data;
        for line in lines(payload) {
            self.data = &payload[..line.end];
            self.reader = Reader::at(self.data, line.start, self.isa);
            if total < self.limits.max_array_items && self.tree.admits(1, false, total) {
                self.value(1, Position { key: None, parent: root, number: total, is_repeat: false })?;
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

    fn string(&mut self) -> Result<Text> {
        let span = self.reader.skip()?;
        let content = span.start + 1..span.end - 1;
        let bytes = &self.data[content.clone()];
        let most = self.limits.max_string_chars;
        let (long, short) = SHORT_STRING;
        let is_short = bytes.len() > long && most > short;
        let first = text::floor(bytes, if is_short { short } else { most }, usize::MAX);
        check_string(self.data, content.start..content.start + first)?;
        // A character is a byte or more, so this is the least that will be shown in the end.
        let grown = bytes.len().min(most).max(first + 1);
        let growth = if is_short && first < bytes.len() { grown - first } else { 0 };
        Ok(Text { content, first, shown: first, growth })
    }

    /// Takes the next container if it is small, and nothing in it is over a limit.
    fn small(&mut self, depth: usize, kind: Kind) -> Option<Value> {
        let start = self.reader.pos();
        let window = &self.data[..self.data.len().min(start + SMALL_WINDOW)];
        let most = if kind == Kind::Array { SMALL_ARRAY } else { SMALL_OBJECT };
        let mut reader = self.reader.within(window);
        let size = self.size_within(&mut reader, depth, most)?;
        let span = start..reader.pos();
        self.reader.jump(span.end);
        Some(Value::Whole { span, size })
    }

    /// What the next value takes without white space, if that is at most `most` and within all limits.
    fn size_within(&self, reader: &mut Reader<'_>, depth: usize, most: usize) -> Option<usize> {
        if depth > self.limits.max_depth {
            return None;
        }
        let mut size = 2;
        match reader.kind().ok()? {
            Kind::Array => {
                reader.open();
                let mut count = 0;
                while reader.next_item(count == 0).ok()? {
                    size += usize::from(count > 0);
                    size += self.size_within(reader, depth + 1, most.checked_sub(size)?)?;
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
                    size += self.size_within(reader, depth + 1, most.checked_sub(size)?)?;
                    count += 1;
                    if count > self.limits.max_object_keys {
                        return None;
                    }
                }
            }
            Kind::String => {
                let content = reader.string().ok()?;
                size += content.len();
                let chars = self.limits.max_string_chars;
                if text::floor(self.data.get(content.clone())?, chars, usize::MAX) < content.len() {
                    return None;
                }
            }
            Kind::Number | Kind::Bool | Kind::Null => size = reader.scalar().ok()?.len(),
        }
        (size <= most).then_some(size)
    }
}
