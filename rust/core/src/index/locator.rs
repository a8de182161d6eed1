//! Finds the items of a streamed payload, without validating its structure.
//!
//! Object keys are read byte by byte. Arrays are counted, and everything else is skipped, in blocks.
//!
//! The main collection is chosen among those that are at most four object keys deep and not inside an array: it is
//! the one with the most bytes, the first of several. A collection is an array, or a map of like values (see
//! [`MapDetector`](super::map_detector::MapDetector)) that has no collection inside with more than half of its bytes.
//!
//! Once a map is large, its entries are counted in blocks, too. Only an entry that turns out to be large is read key by
//! key, from its start: the collection inside may be the main one.

use super::builder::IndexBuilder;
use super::objects::OpenObjects;
use super::tail::{MIN_MAP_BYTES, SEGMENT_BYTES, Tail};
use super::{ItemIndex, Kind};
use crate::error::{Error, Result};
use crate::pointer::Pointer;
use crate::scan::Isa;
use crate::scan::nesting::{Nesting, Stop};
use crate::scan::rows::Rows;
use crate::validate::Counted;

/// Maximum number of object keys on the path of the main collection.
const MAX_MAIN_DEPTH: usize = 4;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Locator {
    isa: Isa,
    pos: u64,
    state: State,
    /// Path of the requested collection; `None` for the main one.
    pointer: Option<Pointer>,
    /// How many tokens of the pointer are matched.
    matched: usize,
    /// How many arrays on the pointer's path are open.
    arrays: u64,
    objects: OpenObjects,
    /// Offset of the first top-level value.
    root: Option<u64>,
    /// Items of the collection that starts at `start`, the one being counted.
    items: IndexBuilder,
    start: u64,
    kind: Kind,
    /// The last bytes of the map whose entries are counted.
    tail: Tail,
    found: Option<ItemIndex>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a value. `wanted`: it may be or contain the requested collection.
    Value {
        wanted: bool,
    },
    /// After the opening bracket of a collection whose items are counted.
    FirstItem,
    Items(Nesting),
    /// In a large map whose entries are counted.
    Entries(Nesting),
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
            arrays: 0,
            objects: OpenObjects::default(),
            root: None,
            items: IndexBuilder::default(),
            start: 0,
            kind: Kind::Array,
            tail: Tail::new(),
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

    /// Returns the offset of the next byte.
    pub(super) fn pos(&self) -> u64 {
        self.pos
    }

    /// Returns how many containers are open between two items, two entries, or two parts of a value that is skipped.
    /// `None` in any other state.
    pub(super) fn separator_depth(&self) -> Option<u64> {
        let depth = self.objects.depth() as u64 + self.arrays;
        match self.state {
            State::Items(_) | State::SkipValue(_) => Some(depth + 1),
            State::Entries(_) => Some(depth),
            State::Rows(_) => Some(0),
            _ => None,
        }
    }

    /// Returns the state that this locator will have at `pos` if that is after a comma or newline at
    /// [`Locator::separator_depth`] in the same collection. Its items are those of this one.
    pub(super) fn after_separator(&self, pos: u64) -> Self {
        let mut after = self.clone();
        after.pos = pos;
        match &mut after.state {
            State::Items(nesting) | State::SkipValue(nesting) => *nesting = Nesting::inside(),
            State::Entries(nesting) => {
                *nesting = Nesting::inside();
                after.tail.restart();
            }
            State::Rows(rows) => *rows = Rows::before_line(true),
            _ => {}
        }
        after
    }

    /// Returns the kind and start of the collection whose items are being counted. They identify the collection.
    pub(super) fn open_collection(&mut self) -> Option<(Kind, u64)> {
        match self.state {
            State::Items(_) => Some((self.kind, self.start)),
            State::Entries(_) => self.objects.last_mut().map(|object| (Kind::Map, object.start)),
            State::Rows(_) => self.root.map(|root| (Kind::Ndjson, root)),
            _ => None,
        }
    }

    /// Takes the items that were counted so far in the open collection.
    pub(super) fn take_items(&mut self) -> IndexBuilder {
        let items = match (self.state, self.objects.last_mut()) {
            (State::Entries(_), Some(object)) => &mut object.entries,
            _ => &mut self.items,
        };
        items.take_before(self.pos)
    }

    /// Consumes bytes that the validator has counted. Returns false if that is not enough and they have to be read.
    pub(super) fn skip(&mut self, bytes: &[u8], counted: Counted) -> bool {
        match self.state {
            State::Items(nesting) => {
                if !self.items.skip_values(nesting, self.isa, self.pos, bytes, &counted) {
                    return false;
                }
                self.state = State::Items(counted.nesting);
            }
            State::Entries(nesting) => {
                let Some(object) = self.objects.last_mut() else { return false };
                // Limited, because to search back through a larger entry takes longer than to scan the bytes.
                let comma = counted.nesting.last_comma(bytes, SEGMENT_BYTES as usize);
                let is_tail_known = (self.pos | bytes.len() as u64).is_multiple_of(SEGMENT_BYTES)
                    && comma.is_some() == (counted.separators > 0);
                if !is_tail_known || !object.entries.skip_values(nesting, self.isa, self.pos, bytes, &counted)
                {
                    return false;
                }
                self.state = State::Entries(counted.nesting);
                match comma {
                    Some(comma) => self.tail.restart_with(&bytes[comma + 1..], counted.nesting),
                    None => self.keep_tail(counted.nesting, bytes, 0),
                }
            }
            State::Rows(mut rows) => {
                self.items.skip_rows(&mut rows, self.isa, self.pos, bytes, &counted);
                self.state = State::Rows(rows);
            }
            State::SkipValue(_) => self.state = State::SkipValue(counted.nesting),
            _ => return false,
        }
        self.pos += bytes.len() as u64;
        true
    }

    pub(super) fn finish(mut self) -> Result<ItemIndex> {
        let is_incomplete = match self.state {
            State::Scalar | State::AfterRoot { .. } => self.objects.depth() > 0,
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
            (None, Some(pointer)) => Err(Error::no_items(pointer.as_str())),
        }
    }

    /// Consumes some bytes, or changes to a state that will.
    fn step(&mut self, bytes: &[u8]) -> usize {
        match self.state {
            State::Items(nesting) => self.count_items(nesting, bytes),
            State::Entries(nesting) => self.count_entries(nesting, bytes),
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
                self.objects.push_key(&bytes[..text.len - usize::from(text.is_closed)]);
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
            (State::FirstItem, b']' | b'}') => self.end_counted(pos + 1),
            (State::FirstItem, _) => {
                self.items.push(self.start + 1);
                self.state = State::Items(Nesting::inside());
                return 0;
            }
            (State::Key, b'"') => {
                self.objects.begin_key();
                self.state = State::KeyText { escaped: false };
            }
            (State::Key | State::AfterMember, b'}') => self.end_object(pos + 1),
            (State::Colon { wanted }, b':') => self.state = State::Value { wanted },
            (State::AfterMember, b',') => {
                self.state = State::Key;
                if let Some(object) = self.objects.last_mut() {
                    object.next_entry = pos + 1;
                    if object.map_detector.is_map() && pos - object.start >= MIN_MAP_BYTES {
                        object.entries.push(pos + 1);
                        self.tail.restart();
                        self.state = State::Entries(Nesting::inside());
                    }
                }
            }
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
        let depth = self.objects.depth();
        let Some(pointer) = &self.pointer else {
            self.state = self.begin_member(first, depth, pos);
            return 1;
        };
        self.state = match (first, pointer.tokens().get(self.matched)) {
            (b'[' | b'{', None) if wanted => self.begin_counting(first, pos),
            (b'[', Some(token)) if wanted => match token.index() {
                Some(index) => {
                    self.matched += 1;
                    self.arrays += 1;
                    if index == 0 {
                        State::Value { wanted }
                    } else {
                        State::SeekItem(Nesting::inside(), index)
                    }
                }
                None => State::Done,
            },
            (b'{', Some(_)) if wanted => {
                self.objects.enter(pos);
                State::Key
            }
            _ if wanted && self.follows_pointer() => State::Done,
            _ => skip(first),
        };
        1
    }

    /// Begins a value that may be or contain the main collection.
    fn begin_member(&mut self, first: u8, depth: usize, pos: u64) -> State {
        let mut is_compared = false;
        if let Some(object) = self.objects.last_mut() {
            object.map_detector.begin_value(first);
            is_compared = object.map_detector.is_undecided();
        }
        match first {
            b'[' if depth <= MAX_MAIN_DEPTH => self.begin_counting(first, pos),
            // One level deeper, only the keys matter: they tell whether the object around them is a map.
            b'{' if depth <= MAX_MAIN_DEPTH || depth == MAX_MAIN_DEPTH + 1 && is_compared => {
                self.objects.enter(pos);
                State::Key
            }
            _ => skip(first),
        }
    }

    /// Begins a collection whose items are counted in blocks.
    fn begin_counting(&mut self, first: u8, pos: u64) -> State {
        (self.start, self.kind) = (pos, if first == b'[' { Kind::Array } else { Kind::Map });
        self.items.clear();
        State::FirstItem
    }

    fn end_key(&mut self) {
        let wanted = match &self.pointer {
            None => {
                self.objects.end_key();
                true
            }
            Some(pointer) => {
                let token = pointer.tokens().get(self.matched);
                let is_match =
                    token.is_some_and(|token| self.objects.key().is_some_and(|key| token.matches_key(key)));
                self.matched += usize::from(is_match);
                is_match
            }
        };
        self.state = State::Colon { wanted };
    }

    fn end_value(&mut self) {
        self.state = match self.objects.last_mut() {
            Some(object) => {
                object.map_detector.end_value();
                State::AfterMember
            }
            None => State::AfterRoot { newline: false },
        };
    }

    /// Ends an object that was entered, and records it if it is a map and the largest collection so far.
    fn end_object(&mut self, end: u64) {
        if self.follows_pointer() {
            // An object on the pointer's path has ended without the key.
            self.state = State::Done;
            return;
        }
        let Some(object) = self.objects.leave() else { return };
        let (start, size, mut largest) = (object.start, end - object.start, object.largest_inside);
        if object.map_detector.is_map() && size / 2 >= largest {
            let entries = std::mem::take(&mut object.entries);
            if self.objects.depth() <= MAX_MAIN_DEPTH {
                largest = size;
                self.record(Kind::Map, entries, start, end);
            }
        }
        if let Some(outer) = self.objects.last_mut() {
            outer.largest_inside = outer.largest_inside.max(largest);
        }
        self.end_value();
    }

    fn count_items(&mut self, mut nesting: Nesting, bytes: &[u8]) -> usize {
        let progress = self.items.scan_values(&mut nesting, self.isa, self.pos, bytes);
        self.state = State::Items(nesting);
        if progress.stop == Stop::Closed {
            self.end_counted(self.pos + progress.consumed as u64);
        }
        progress.consumed
    }

    fn count_entries(&mut self, mut nesting: Nesting, bytes: &[u8]) -> usize {
        let Some(object) = self.objects.last_mut() else { return bytes.len() };
        let segment = usize::try_from(SEGMENT_BYTES - self.pos % SEGMENT_BYTES).unwrap_or(bytes.len());
        let bytes = &bytes[..bytes.len().min(segment)];
        let progress = object.entries.scan_values(&mut nesting, self.isa, self.pos, bytes);
        self.state = State::Entries(nesting);
        let end = self.pos + progress.consumed as u64;
        if progress.stop == Stop::Closed {
            self.end_object(end);
            return progress.consumed;
        }
        self.keep_tail(nesting, &bytes[..progress.consumed], progress.commas);
        progress.consumed
    }

    /// Adds to the tail bytes whose entries were counted; `nesting` is the state after them. At the end of a segment,
    /// reads the last entry again if it is large.
    fn keep_tail(&mut self, nesting: Nesting, bytes: &[u8], commas: u64) {
        let end = self.pos + bytes.len() as u64;
        self.tail.push(bytes, commas);
        if !end.is_multiple_of(SEGMENT_BYTES) {
            return;
        }
        self.tail.end_segment(nesting);
        let Some(entry) = self.tail.take_large_entry(self.isa) else { return };
        if let Some(object) = self.objects.last_mut() {
            object.is_next_counted = true;
        }
        self.state = State::Key;
        let pos = std::mem::replace(&mut self.pos, end - entry.len() as u64);
        self.feed(&entry);
        self.pos = pos;
    }

    /// Ends a collection whose items were counted.
    fn end_counted(&mut self, end: u64) {
        if let Some(object) = self.objects.last_mut() {
            object.largest_inside = object.largest_inside.max(end - self.start);
        }
        let items = std::mem::take(&mut self.items);
        self.items = self.record(self.kind, items, self.start, end);
        if self.follows_pointer() { self.state = State::Done } else { self.end_value() }
    }

    /// Records a collection if it is the requested one, or the largest so far that has a path. Otherwise returns
    /// the builder, whose memory is used again.
    fn record(&mut self, kind: Kind, items: IndexBuilder, start: u64, end: u64) -> IndexBuilder {
        let is_better = self.found.as_ref().is_none_or(|best| end - start > best.end - best.start);
        let path = match &self.pointer {
            Some(pointer) => Some(pointer.as_str().to_owned()),
            None if is_better => self.objects.pointer(),
            None => None,
        };
        if path.is_none() {
            return items;
        }
        self.found = Some(items.into_index(kind, path, start, end));
        IndexBuilder::default()
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

/// Returns the state that skips a value.
fn skip(first: u8) -> State {
    match first {
        b'[' | b'{' => State::SkipValue(Nesting::inside()),
        b'"' => State::Text { escaped: false },
        // Any other byte starts a scalar, which may be that byte alone; the next step finds its end.
        _ => State::Scalar,
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
