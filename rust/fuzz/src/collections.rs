//! The main collection of a document, found by reading every value of it.

use std::collections::HashSet;
use std::ops::Range;

/// Maximum number of object keys on the path of a collection.
const MAX_DEPTH: usize = 4;

/// Keys that are compared of one value.
const MAX_KEYS: usize = 32;

/// Returns the span of the main collection of a JSON document whose keys are all text of at most 4096 bytes.
#[must_use]
pub fn find_main(data: &[u8]) -> Option<Range<usize>> {
    let mut found = Vec::new();
    let mut walk = Walk { data, pos: 0, found: &mut found };
    walk.value(0);
    let largest = found.iter().map(Range::len).max()?;
    found.into_iter().find(|span| span.len() == largest)
}

/// Returns the keys of an object in order, as they are written with their quotes.
#[must_use]
pub fn keys(object: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let keys = Walk { data: object, pos: 0, found: &mut found }.value(0).keys;
    let start = |key: &[u8]| key.as_ptr() as usize - object.as_ptr() as usize;
    keys.into_iter().map(|key| &object[start(key) - 1..start(key) + key.len() + 1]).collect()
}

struct Walk<'a, 'b> {
    data: &'a [u8],
    pos: usize,
    /// Spans of the collections, each after those inside of it.
    found: &'b mut Vec<Range<usize>>,
}

/// A value: its first byte, and its keys as they are written.
struct Seen<'a> {
    first: u8,
    keys: Vec<&'a [u8]>,
}

impl<'a> Walk<'a, '_> {
    fn peek(&mut self) -> u8 {
        while self.data[self.pos].is_ascii_whitespace() {
            self.pos += 1;
        }
        self.data[self.pos]
    }

    fn string(&mut self) -> &'a [u8] {
        let start = self.pos + 1;
        self.pos = start;
        while self.data[self.pos] != b'"' {
            self.pos += if self.data[self.pos] == b'\\' { 2 } else { 1 };
        }
        self.pos += 1;
        &self.data[start..self.pos - 1]
    }

    fn value(&mut self, depth: usize) -> Seen<'a> {
        let (first, start) = (self.peek(), self.pos);
        let mut keys = Vec::new();
        match first {
            b'"' => _ = self.string(),
            b'[' | b'{' => {
                let before = self.found.len();
                let values = self.members(depth, &mut keys);
                let span = start..self.pos;
                let has_larger = self.found[before..].iter().any(|inner| 2 * inner.len() > span.len());
                if depth <= MAX_DEPTH && (first == b'[' || is_map(&values) && !has_larger) {
                    self.found.push(span);
                }
            }
            _ => {
                while self.data.get(self.pos).is_some_and(|byte| !b",]} \t\r\n".contains(byte)) {
                    self.pos += 1;
                }
            }
        }
        Seen { first, keys }
    }

    fn members(&mut self, depth: usize, keys: &mut Vec<&'a [u8]>) -> Vec<Seen<'a>> {
        let is_object = self.data[self.pos] == b'{';
        let mut values = Vec::new();
        self.pos += 1;
        loop {
            if matches!(self.peek(), b']' | b'}') {
                self.pos += 1;
                return values;
            }
            if is_object {
                keys.push(self.string());
                self.peek();
                self.pos += 1;
            }
            // Nothing inside an array is a collection by itself.
            values.push(self.value(if is_object { depth + 1 } else { MAX_DEPTH + 1 }));
            if self.peek() == b',' {
                self.pos += 1;
            }
        }
    }
}

fn is_map(values: &[Seen<'_>]) -> bool {
    let kind = |seen: &Seen<'_>| match seen.first {
        b'-' | b'0'..=b'9' => b'0',
        b't' => b'f',
        other => other,
    };
    let values: Vec<_> = values.iter().filter(|seen| seen.first != b'n').collect();
    let Some(first) = values.first().map(|seen| kind(seen)) else { return false };
    let needed = match first {
        b'{' => 8,
        b'[' => 32,
        _ => 100,
    };
    let Some(values) = values.get(..needed) else { return false };
    let keys: Vec<&[u8]> = values.iter().flat_map(|seen| seen.keys.iter().take(MAX_KEYS).copied()).collect();
    let distinct = keys.iter().collect::<HashSet<_>>().len();
    values.iter().all(|seen| kind(seen) == first) && 4 * keys.len() >= distinct * needed
}
