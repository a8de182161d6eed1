//! Finds a literal or a regular expression, a page of matches at a time.

mod ascii;
mod context;
mod non_empty;
mod pattern;
mod prefilter;
#[cfg(test)]
mod tests;

use memchr::memchr_iter;

use crate::error::{Error, Result};
use crate::index::{Finder, ItemIndex, Kind};
pub use pattern::Pattern;

/// Which matches to return, and how much around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The byte to search from; look-behind (`^`, `\b`) still sees what is before it.
    pub start: usize,
    /// How many matches at most; at least 1.
    pub limit: usize,
    /// How many bytes of text to show on either side of a match.
    pub context: usize,
}

/// One place a pattern was found; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// The number of the line it starts in, from 0; `None` where items are located instead.
    pub line: Option<u64>,
    /// The number of the item it starts in; `None` outside of the items, or where lines are counted.
    pub item: Option<u64>,
    /// The match and whole characters around it; `None` where the match is not text.
    pub context: Option<String>,
    /// The byte the context starts at.
    pub context_start: usize,
}

/// A page of matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In the order of the payload; they do not overlap.
    pub matches: Vec<Match>,
    /// Where to go on from; `None` exactly when the payload was searched to its end.
    pub next_start: Option<usize>,
}

/// Finds at most `limit` matches from `start` on. Following `next_start` gives what one unlimited search would.
///
/// With an index of items the matches have item numbers, without one they have line numbers. Each match costs at most one
/// pass over the payload, whatever the pattern; commonly all of them together do.
pub fn search(data: &[u8], pattern: &Pattern, options: Options, index: Option<&ItemIndex>) -> Result<Page> {
    let Options { start, limit, context } = options;
    if limit == 0 {
        return Err(Error::argument("limit must be at least 1"));
    }
    let mut places = Places::new(data, index);
    let mut found = pattern.matches(data, start);
    let mut matches = Vec::new();
    while matches.len() < limit {
        let Some(at) = found.next() else { return Ok(Page { matches, next_start: None }) };
        let (line, item) = places.of(at.start);
        let (context_start, context) = context::around(data, &at, context);
        matches.push(Match { start: at.start, end: at.end, line, item, context, context_start });
    }
    Ok(Page { next_start: matches.last().map(|last| last.end).filter(|&end| end < data.len()), matches })
}

/// Which line or item matches are in.
enum Places<'a> {
    Lines(Lines<'a>),
    IndexedLines(Finder<'a>),
    Items(Finder<'a>),
}

impl<'a> Places<'a> {
    fn new(data: &'a [u8], index: Option<&'a ItemIndex>) -> Self {
        match index.and_then(|index| Some((index, index.kind()?))) {
            None => Self::Lines(Lines::new(data)),
            Some((index, Kind::Lines)) => Self::IndexedLines(Finder::new(data, index)),
            Some((index, Kind::Array | Kind::Ndjson)) => Self::Items(Finder::new(data, index)),
        }
    }

    /// The line and the item that a match at `start` is in. Called with rising places.
    fn of(&mut self, start: usize) -> (Option<u64>, Option<u64>) {
        match self {
            Self::Lines(lines) => (Some(lines.number_at(start)), None),
            Self::IndexedLines(lines) => (lines.item_at(start as u64), None),
            Self::Items(items) => (None, items.item_at(start as u64)),
        }
    }
}

/// Counts newlines once, up to the last byte asked for.
struct Lines<'a> {
    data: &'a [u8],
    counted: usize,
    number: u64,
}

impl<'a> Lines<'a> {
    fn new(data: &'a [u8]) -> Self {
        Self { data, counted: 0, number: 0 }
    }

    /// `at` must not be before the one asked for last.
    fn number_at(&mut self, at: usize) -> u64 {
        let passed = self.data.get(self.counted..at).unwrap_or_default();
        self.number += memchr_iter(b'\n', passed).count() as u64;
        self.counted = at;
        self.number
    }
}
