//! Finds the items of a streamed payload, without validating its structure.
//!
//! Object keys are read byte by byte. Arrays are counted, and everything else is skipped, in blocks.

use super::builder::IndexBuilder;
use super::keys::Keys;
use super::{ItemIndex, Kind};
use crate::error::{Error, Result};
use crate::pointer::Pointer;
use crate::scan::Isa;
use crate::scan::nesting::{Nesting, Stop};
use crate::scan::rows::Rows;

/// Maximum number of object keys on the path of the main array.
const MAX_MAIN_DEPTH: usize = 4;

#[derive(Debug, Clone)]
pub(super) struct Locator {
    isa: Isa,
    pos: u64,
    state: State,
    /// Path of the requested array; `None` for the main one.
    pointer: Option<Pointer>,
    /// How many tokens of the pointer are matched.
    matched: usize,
    keys: Keys,
    /// Offset of the first top-level value.
    root: Option<u64>,
    /// Items of the array that starts at `array`, the one being counted.
    items: IndexBuilder,
    array: u64,
    found: Option<ItemIndex>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a value. `wanted`: it may be or contain the requested array.
    Value {
        wanted: bool,
    },
    /// After the opening bracket of an array whose items are counted.
    FirstItem,
    Items(Nesting),
    /// In an array on the pointer's path: this many commas before the item to enter.
    SeekItem(Nesting, u64),
    Key,
    KeyText {
        escaped: bool,
    },
    Colon {
        wanted: bool,
    },
    Text {
        escaped: bool,
    },
    Scalar,
    SkipValue(Nesting),
    /// After a value inside an object.
    AfterMember,
    /// After the first top-level value.
    AfterRoot {
        newline: bool,
    },
    Rows(Rows),
    /// The rest of the payload does not matter.
    Done,
}

impl Locator {
    pub(super) fn new(pointer: Option<Pointer>, isa: Isa) -> Self {
        Self {
            isa,
            pos: 0,
            state: State::Value { wanted: true },
            pointer,
            matched: 0,
            keys: Keys::default(),
            root: None,
            items: IndexBuilder::default(),
            array: 0,
            found: None,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let consumed = self.step(rest);
            self.pos += consumed as u64;
            rest = &rest[consumed..];
        }
    }

    pub(super) fn finish(mut self) -> Result<ItemIndex> {
        let is_incomplete = match self.state {
            State::Scalar | State::AfterRoot { .. } => self.keys.depth() > 0,
            State::Rows(_) | State::Done => false,
            _ => true,
        };
        if is_incomplete {
            return Err(Error::json(self.pos, "unexpected end"));
        }
        if let State::Rows(_) = self.state {
            let path = Some(String::new());
            let start = self.root.unwrap_or_default();
            return Ok(self.items.into_index(Kind::Ndjson, path, start, self.pos));
        }
        match (self.found.take(), &self.pointer) {
            (Some(found), _) => Ok(found),
            (None, None) => Ok(ItemIndex::default()),
            (None, Some(pointer)) => Err(Error::no_array(pointer.as_str())),
        }
    }

    /// Consumes some bytes, or changes to a state that will.
    fn step(&mut self, bytes: &[u8]) -> usize {
        match self.state {
            State::Items(nesting) => self.count_items(nesting, bytes),
            State::SkipValue(mut nesting) => {
                let progress = nesting.close(self.isa, bytes);
                self.state = State::SkipValue(nesting);
                if progress.stop == Stop::Closed {
                    self.end_value();
                }
                progress.consumed
            }
            State::SeekItem(mut nesting, commas) => {
                let progress = nesting.seek(self.isa, bytes, commas);
                self.state = match progress.stop {
                    Stop::Reached => State::Value { wanted: true },
                    Stop::Closed => State::Done,
                    Stop::Exhausted => State::SeekItem(nesting, commas - progress.commas),
                };
                progress.consumed
            }
            State::Rows(mut rows) => {
                let consumed = self.items.scan_rows(&mut rows, self.isa, self.pos, bytes);
                self.state = State::Rows(rows);
                consumed
            }
            State::Text { escaped } => {
                let text = text_end(escaped, bytes);
                self.state = State::Text { escaped: text.escaped };
                if text.is_closed {
                    self.end_value();
                }
                text.len
            }
            State::KeyText { escaped } => {
                let text = text_end(escaped, bytes);
                self.state = State::KeyText { escaped: text.escaped };
                self.keys.push_text(&bytes[..text.len - usize::from(text.is_closed)]);
                if text.is_closed {
                    self.end_key();
                }
                text.len
            }
            State::Scalar => {
                let is_end =
                    |byte: &u8| matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r') || byte | 0x20 == b'}';
                let end = bytes.iter().position(is_end);
                if end.is_some() {
                    self.end_value();
                }
                end.unwrap_or(bytes.len())
            }
            State::AfterRoot { newline } => self.after_root(newline, bytes),
            State::Done => bytes.len(),
            _ => match bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
                Some(at) => at + self.token(bytes[at], self.pos + at as u64),
                None => bytes.len(),
            },
        }
    }

    /// Handles a byte that is not white space. Returns 1 if it was consumed, else 0.
    fn token(&mut self, byte: u8, pos: u64) -> usize {
        match (self.state, byte) {
            (State::Value { wanted }, _) => return self.begin_value(byte, wanted, pos),
            (State::FirstItem, b']') => self.end_array(pos + 1),
            (State::FirstItem, _) => {
                self.items.push(self.array + 1);
                self.state = State::Items(Nesting::inside());
                return 0;
            }
            (State::Key, b'"') => {
                self.keys.begin_text();
                self.state = State::KeyText { escaped: false };
            }
            (State::Key | State::AfterMember, b'}') => {
                self.keys.leave();
                // An object on the pointer's path has ended without the key.
                if self.follows_pointer() { self.state = State::Done } else { self.end_value() }
            }
            (State::Colon { wanted }, b':') => self.state = State::Value { wanted },
            (State::AfterMember, b',') => self.state = State::Key,
            // Not JSON, which is for the validator to report.
            _ => {}
        }
        1
    }

    /// Whether a pointer is followed down from the root.
    fn follows_pointer(&self) -> bool {
        self.pointer.as_ref().is_some_and(|pointer| !pointer.tokens().is_empty())
    }

    fn begin_value(&mut self, first: u8, wanted: bool, pos: u64) -> usize {
        self.root.get_or_insert(pos);
        let token = self.pointer.as_ref().and_then(|pointer| pointer.tokens().get(self.matched));
        self.state = match first {
            b'[' if wanted && token.is_none() => {
                self.array = pos;
                self.items.clear();
                State::FirstItem
            }
            b'[' if wanted => match token.and_then(|token| token.index()) {
                Some(index) => {
                    self.matched += 1;
                    if index == 0 {
                        State::Value { wanted }
                    } else {
                        State::SeekItem(Nesting::inside(), index)
                    }
                }
                None => State::Done,
            },
            b'{' if wanted
                && (token.is_some() || self.pointer.is_none() && self.keys.depth() < MAX_MAIN_DEPTH) =>
            {
                self.keys.enter();
                State::Key
            }
            _ if wanted && self.follows_pointer() => State::Done,
            b'[' | b'{' => State::SkipValue(Nesting::inside()),
            b'"' => State::Text { escaped: false },
            // Any other byte starts a scalar, which may be that byte alone; the next step finds its end.
            _ => State::Scalar,
        };
        1
    }

    fn end_key(&mut self) {
        let wanted = match &self.pointer {
            None => true,
            Some(pointer) => {
                let token = pointer.tokens().get(self.matched);
                let is_match =
                    token.is_some_and(|token| self.keys.last().is_some_and(|key| token.matches_key(key)));
                self.matched += usize::from(is_match);
                is_match
            }
        };
        self.state = State::Colon { wanted };
    }

    fn end_value(&mut self) {
        self.state =
            if self.keys.depth() == 0 { State::AfterRoot { newline: false } } else { State::AfterMember };
    }

    fn count_items(&mut self, mut nesting: Nesting, bytes: &[u8]) -> usize {
        // An item begins right after its comma, so the comma of one that begins in the next block may be a
        // byte before it.
        let countable = self.items.countable(self.pos + 1, bytes.len());
        let progress = if countable > 0 {
            let progress = nesting.close(self.isa, &bytes[..countable]);
            self.items.add_count(progress.commas);
            progress
        } else {
            let progress = nesting.seek(self.isa, bytes, 1);
            if progress.stop == Stop::Reached {
                self.items.push(self.pos + progress.consumed as u64);
            }
            progress
        };
        self.state = State::Items(nesting);
        if progress.stop == Stop::Closed {
            self.end_array(self.pos + progress.consumed as u64);
        }
        progress.consumed
    }

    /// Records the array that ends here, if it is the requested one or the largest so far.
    fn end_array(&mut self, end: u64) {
        let is_better = self.found.as_ref().is_none_or(|best| end - self.array > best.end - best.start);
        let path = match &self.pointer {
            Some(pointer) => Some(pointer.as_str().to_owned()),
            None if is_better => self.keys.pointer(),
            None => None,
        };
        if path.is_some() {
            let items = std::mem::take(&mut self.items);
            self.found = Some(items.into_index(Kind::Array, path, self.array, end));
        }
        if self.follows_pointer() { self.state = State::Done } else { self.end_value() }
    }

    /// Handles what follows the first top-level value: another value on a new line makes both rows of NDJSON.
    fn after_root(&mut self, newline: bool, bytes: &[u8]) -> usize {
        let at = bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        let white = &bytes[..at.unwrap_or(bytes.len())];
        let newline = newline || white.contains(&b'\n');
        self.state = State::AfterRoot { newline };
        if at.is_some() {
            self.state = State::Done;
            if newline {
                self.items.clear();
                self.items.push(self.root.unwrap_or_default());
                self.items.push(self.pos + white.len() as u64);
                self.state = State::Rows(Rows::inside(true));
            }
        }
        white.len()
    }
}

struct TextEnd {
    len: usize,
    is_closed: bool,
    escaped: bool,
}

/// Returns where a string ends, closing quote included. `escaped` says whether the first byte is escaped;
/// that of the result, whether the byte after `bytes` is.
fn text_end(escaped: bool, bytes: &[u8]) -> TextEnd {
    let mut pos = usize::from(escaped);
    while let Some(found) = memchr::memchr2(b'"', b'\\', bytes.get(pos..).unwrap_or_default()) {
        pos += found;
        if bytes[pos] == b'"' {
            return TextEnd { len: pos + 1, is_closed: true, escaped: false };
        }
        pos += 2;
    }
    TextEnd { len: bytes.len(), is_closed: false, escaped: pos > bytes.len() }
}
