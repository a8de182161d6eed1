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
use crate::index::{ItemFinder, ItemIndex, Kind};
pub use pattern::Pattern;
pub(crate) use pattern::TextSearcher;

/// Which matches to return, and how much around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The byte to search from. Look-behind (`^`, `\b`) still sees the bytes before it.
    pub start: usize,
    /// Maximum number of matches; at least 1.
    pub limit: usize,
    /// How many bytes of text to show on either side of a match.
    pub context: usize,
}

/// A match of a pattern; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// Number of the line it starts in, from 0; `None` if items are numbered instead.
    pub line: Option<u64>,
    /// Number of the item it starts in; `None` outside the items, or if lines are numbered.
    pub item: Option<u64>,
    /// The match and whole characters around it; `None` if the match is not text.
    pub context: Option<String>,
    /// Offset of the context's first byte.
    pub context_start: usize,
}

/// A page of matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In the order of the payload; they do not overlap.
    pub matches: Vec<Match>,
    /// Where the next page starts; `None` if the payload was searched to its end.
    pub next_start: Option<usize>,
}

/// Finds at most `limit` matches from `start` on. Following `next_start` gives the matches of one unlimited
/// search.
///
/// With an index of items the matches have item numbers, without one they have line numbers. Each match costs
/// at most one pass over the payload, whatever the pattern; usually one pass finds all of them.
pub fn search(data: &[u8], pattern: &Pattern, options: Options, index: Option<&ItemIndex>) -> Result<Page> {
    let Options { start, limit, context } = options;
    if limit == 0 {
        return Err(Error::argument("limit must be at least 1"));
    }
    let mut numbering = Numbering::new(data, index);
    let mut found = pattern.matches(data, start);
    let mut matches = Vec::new();
    while matches.len() < limit {
        let Some(at) = found.next() else { return Ok(Page { matches, next_start: None }) };
        let (line, item) = numbering.numbers_at(at.start);
        let (context_start, context) = context::around(data, &at, context);
        matches.push(Match { start: at.start, end: at.end, line, item, context, context_start });
    }
    Ok(Page { next_start: matches.last().map(|last| last.end).filter(|&end| end < data.len()), matches })
}

/// Numbers the lines or items that matches are in.
enum Numbering<'a> {
    Lines(Lines<'a>),
    IndexedLines(ItemFinder<'a>),
    Items(ItemFinder<'a>),
}

impl<'a> Numbering<'a> {
    fn new(data: &'a [u8], index: Option<&'a ItemIndex>) -> Self {
        match index.and_then(|index| Some((index, index.kind()?))) {
            None => Self::Lines(Lines::new(data)),
            Some((index, Kind::Lines)) => Self::IndexedLines(ItemFinder::new(data, index)),
            Some((index, _)) => Self::Items(ItemFinder::new(data, index)),
        }
    }

    /// Returns the line and the item that a match at `start` is in. Must be called with ascending offsets.
    fn numbers_at(&mut self, start: usize) -> (Option<u64>, Option<u64>) {
        match self {
            Self::Lines(lines) => (Some(lines.number_at(start)), None),
            Self::IndexedLines(lines) => (lines.item_at(start as u64), None),
            Self::Items(items) => (None, items.item_at(start as u64)),
        }
    }
}

/// Line counter that reads every byte once.
struct Lines<'a> {
    data: &'a [u8],
    counted: usize,
    number: u64,
}

impl<'a> Lines<'a> {
    fn new(data: &'a [u8]) -> Self {
        Self { data, counted: 0, number: 0 }
    }

    /// Returns the number of the line that byte `at` is in. `at` must not be smaller than in the last call.
    fn number_at(&mut self, at: usize) -> u64 {
        let skipped = self.data.get(self.counted..at).unwrap_or_default();
        self.number += memchr_iter(b'\n', skipped).count() as u64;
        self.counted = at;
        self.number
    }
}
