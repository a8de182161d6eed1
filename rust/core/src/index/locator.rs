//! Finds the items in a payload that streams by, trusting its structure.
//!
//! Among the keys of objects it goes byte by byte. Inside the arrays it counts, and past everything else, it
//! goes by blocks.

use super::items::Items;
use super::keys::Keys;
use super::{ItemIndex, Kind};
use crate::error::{Error, Result};
use crate::pointer::Pointer;
use crate::scan::Isa;
use crate::scan::nesting::{Nesting, Stop};
use crate::scan::rows::Rows;

/// How many object keys may lead to the main array.
const MAIN_DEPTH: usize = 4;

#[derive(Debug, Clone)]
pub(super) struct Locator {
    isa: Isa,
    pos: u64,
    state: State,
    /// Where the wanted array is; `None` for the main one.
    pointer: Option<Pointer>,
    /// How many tokens of the pointer have led here.
    matched: usize,
    keys: Keys,
    /// Where the first top-level value starts.
    root: Option<u64>,
    /// The items of the array that starts at `array`: one of possibly many.
    items: Items,
    array: u64,
    found: Option<ItemIndex>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a value: one that may be or hold the wanted array, or another.
    Value {
        wanted: bool,
    },
    /// Behind the bracket of an array whose items are wanted.
    First,
    Items(Nesting),
    /// In an array on the pointer's way: so many commas before the item to enter.
    Seeking(Nesting, u64),
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
    Skipping(Nesting),
    /// Behind a value inside an object.
    Member,
    /// Behind the first top-level value.
    End {
        newline: bool,
    },
    Rows(Rows),
    /// Nothing that follows matters.
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
            items: Items::default(),
            array: 0,
            found: None,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.step(rest);
            self.pos += taken as u64;
            rest = &rest[taken..];
        }
    }

    pub(super) fn finish(mut self) -> Result<ItemIndex> {
        let unfinished = match self.state {
            State::Scalar | State::End { .. } => self.keys.depth() > 0,
            State::Rows(_) | State::Done => false,
            _ => true,
        };
        if unfinished {
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
            (None, Some(pointer)) => Err(Error::no_array(pointer.text())),
        }
    }

    /// Takes some bytes, or changes to a state that does.
    fn step(&mut self, bytes: &[u8]) -> usize {
        match self.state {
            State::Items(nesting) => self.count_items(nesting, bytes),
            State::Skipping(mut nesting) => {
                let passed = nesting.close(self.isa, bytes);
                self.state = State::Skipping(nesting);
                if passed.stop == Stop::Closed {
                    self.end_value();
                }
                passed.consumed
            }
            State::Seeking(mut nesting, commas) => {
                let passed = nesting.seek(self.isa, bytes, commas);
                self.state = match passed.stop {
                    Stop::Reached => State::Value { wanted: true },
                    Stop::Closed => State::Done,
                    Stop::Exhausted => State::Seeking(nesting, commas - passed.commas),
                };
                passed.consumed
            }
            State::Rows(mut rows) => {
                let taken = self.items.take_rows(&mut rows, self.isa, self.pos, bytes);
                self.state = State::Rows(rows);
                taken
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
            State::End { newline } => self.end(newline, bytes),
            State::Done => bytes.len(),
            _ => match bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
                Some(at) => at + self.token(bytes[at], self.pos + at as u64),
                None => bytes.len(),
            },
        }
    }

    /// Acts on a byte that is not white space; 1 if it was taken.
    fn token(&mut self, byte: u8, pos: u64) -> usize {
        match (self.state, byte) {
            (State::Value { wanted }, _) => return self.begin_value(byte, wanted, pos),
            (State::First, b']') => self.end_array(pos + 1),
            (State::First, _) => {
                self.items.push(self.array + 1);
                self.state = State::Items(Nesting::inside());
                return 0;
            }
            (State::Key, b'"') => {
                self.keys.begin_text();
                self.state = State::KeyText { escaped: false };
            }
            (State::Key | State::Member, b'}') => {
                self.keys.leave();
                // An object on the pointer's way that has ended did not have the key.
                if self.is_led() { self.state = State::Done } else { self.end_value() }
            }
            (State::Colon { wanted }, b':') => self.state = State::Value { wanted },
            (State::Member, b',') => self.state = State::Key,
            // Not JSON, and nobody asked to be told.
            _ => {}
        }
        1
    }

    /// Whether there is a pointer that must be followed down from the root.
    fn is_led(&self) -> bool {
        self.pointer.as_ref().is_some_and(|pointer| !pointer.tokens().is_empty())
    }

    fn begin_value(&mut self, first: u8, wanted: bool, pos: u64) -> usize {
        self.root.get_or_insert(pos);
        let token = self.pointer.as_ref().and_then(|pointer| pointer.tokens().get(self.matched));
        self.state = match first {
            b'[' if wanted && token.is_none() => {
                self.array = pos;
                self.items.clear();
                State::First
            }
            b'[' if wanted => match token.and_then(|token| token.index()) {
                Some(index) => {
                    self.matched += 1;
                    if index == 0 {
                        State::Value { wanted }
                    } else {
                        State::Seeking(Nesting::inside(), index)
                    }
                }
                None => State::Done,
            },
            b'{' if wanted
                && (token.is_some() || self.pointer.is_none() && self.keys.depth() < MAIN_DEPTH) =>
            {
                self.keys.enter();
                State::Key
            }
            _ if wanted && self.is_led() => State::Done,
            b'[' | b'{' => State::Skipping(Nesting::inside()),
            b'"' => State::Text { escaped: false },
            // The first byte of a scalar may be its last, or no scalar at all: whoever finds the end takes it.
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
        self.state = if self.keys.depth() == 0 { State::End { newline: false } } else { State::Member };
    }

    fn count_items(&mut self, mut nesting: Nesting, bytes: &[u8]) -> usize {
        // A comma announces the item behind it, so what begins in the next block is announced a byte earlier.
        let countable = self.items.countable(self.pos + 1, bytes.len());
        let passed = if countable > 0 {
            let passed = nesting.close(self.isa, &bytes[..countable]);
            self.items.add(passed.commas);
            passed
        } else {
            let passed = nesting.seek(self.isa, bytes, 1);
            if passed.stop == Stop::Reached {
                self.items.push(self.pos + passed.consumed as u64);
            }
            passed
        };
        self.state = State::Items(nesting);
        if passed.stop == Stop::Closed {
            self.end_array(self.pos + passed.consumed as u64);
        }
        passed.consumed
    }

    /// Keeps the array that ends here if it is the wanted one, or the largest so far.
    fn end_array(&mut self, end: u64) {
        let is_better = self.found.as_ref().is_none_or(|best| end - self.array > best.end - best.start);
        let path = match &self.pointer {
            Some(pointer) => Some(pointer.text().to_owned()),
            None if is_better => self.keys.pointer(),
            None => None,
        };
        if path.is_some() {
            let items = std::mem::take(&mut self.items);
            self.found = Some(items.into_index(Kind::Array, path, self.array, end));
        }
        if self.is_led() { self.state = State::Done } else { self.end_value() }
    }

    /// What stands behind the first top-level value: if that is another one, on a new line, both are rows.
    fn end(&mut self, newline: bool, bytes: &[u8]) -> usize {
        let at = bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        let white = &bytes[..at.unwrap_or(bytes.len())];
        let newline = newline || white.contains(&b'\n');
        self.state = State::End { newline };
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

/// Where a string ends, closing quote included. `escaped`: the first byte is, or the byte behind these is.
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
