//! Finds and counts the matches of a literal or a regular expression, a page at a time.

mod ascii;
mod context;
mod count;
mod non_empty;
mod pattern;
mod pointers;
mod prefilter;
#[cfg(test)]
mod tests;
mod values;

use std::ops::Range;

use memchr::memchr_iter;

use crate::error::{Error, Result};
use crate::index::{ItemFinder, ItemIndex, Kind};
use crate::items::item_span;
pub use count::{Count, LiteralCounter, count};
use pattern::Matches;
pub(crate) use pattern::TextSearcher;
pub use pattern::{Mode, Pattern};
use pointers::Pointers;
use values::ValueMatches;

/// Which matches to return, and what to tell about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The byte to search from. Look-behind (`^`, `\b`) still sees the bytes before it.
    pub offset: usize,
    /// Maximum number of matches; at least 1.
    pub limit: usize,
    /// How many bytes of text to show on either side of a match.
    pub context: usize,
    /// Whether to find the JSON Pointer of each match. The payload must be JSON, NDJSON, CSV or TSV.
    pub paths: bool,
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
    /// JSON Pointer of the value or member it starts in; `None` unless asked for, outside of all values, or if it would
    /// cost too much to find.
    pub path: Option<String>,
    /// The match and whole characters around it, within its item; `None` if the match is not text.
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
    pub next_offset: Option<usize>,
}

/// Finds at most `limit` matches from `offset` on. Following `next_offset` gives the matches of one unlimited
/// search.
///
/// With an index of items the matches have item numbers, without one they have line numbers. Each match costs
/// at most one pass over the payload, whatever the pattern; usually one pass finds all of them.
pub fn search(data: &[u8], pattern: &Pattern, options: Options, index: Option<&ItemIndex>) -> Result<Page> {
    let Options { offset, limit, context, paths } = options;
    if limit == 0 {
        return Err(Error::argument("limit must be at least 1"));
    }
    let mut places = Places::new(data, index, paths);
    let mut found = Found::new(data, pattern, offset, index);
    let mut matches = Vec::new();
    while matches.len() < limit {
        let Some(at) = found.next() else { return Ok(Page { matches, next_offset: None }) };
        let Place { line, item, path, bounds } = places.at(&at);
        let (context_start, context) = context::around(data, &at, context, &bounds);
        matches.push(Match { start: at.start, end: at.end, line, item, path, context, context_start });
    }
    Ok(Page { next_offset: matches.last().map(|last| last.end).filter(|&end| end < data.len()), matches })
}

/// Iterator over the matches of a pattern, in the mode it was compiled for.
enum Found<'a> {
    Text(Matches<'a>),
    Values(Box<ValueMatches<'a>>),
}

impl<'a> Found<'a> {
    fn new(data: &'a [u8], pattern: &'a Pattern, offset: usize, index: Option<&ItemIndex>) -> Self {
        match pattern.mode {
            Mode::Text => Self::Text(pattern.matches(data, offset)),
            Mode::Values => {
                Self::Values(Box::new(ValueMatches::new(pattern.searcher(), data, offset, index)))
            }
        }
    }
}

impl Iterator for Found<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        match self {
            Self::Text(matches) => matches.next(),
            Self::Values(matches) => matches.next(),
        }
    }
}

/// Where a match is.
struct Place {
    line: Option<u64>,
    item: Option<u64>,
    path: Option<String>,
    /// The bytes of the payload, or of the item, that a context may show.
    bounds: Range<usize>,
}

/// Finds the places of ascending matches.
struct Places<'a> {
    data: &'a [u8],
    index: Option<&'a ItemIndex>,
    numbering: Numbering<'a>,
    pointers: Option<Pointers<'a>>,
    /// The item of the last match, and its bytes.
    item: Option<(u64, Range<usize>)>,
}

impl<'a> Places<'a> {
    fn new(data: &'a [u8], index: Option<&'a ItemIndex>, paths: bool) -> Self {
        let numbering = Numbering::new(data, index);
        Self { data, index, numbering, pointers: paths.then(|| Pointers::new(data, index)), item: None }
    }

    fn at(&mut self, found: &Range<usize>) -> Place {
        let (line, item) = self.numbering.numbers_at(found.start);
        if self.item.as_ref().map(|(number, _)| *number) != item {
            self.item = item.and_then(|number| Some((number, item_span(self.data, self.index?, number)?)));
        }
        let item_bytes = self.item.as_ref().map(|(number, span)| (*number, span));
        let path = self.pointers.as_mut().and_then(|pointers| pointers.at(found.start, item_bytes));
        let bounds = item_bytes.map_or(0..self.data.len(), |(_, span)| {
            // A match may begin in the white space around the item, or end after it.
            span.start.min(found.start)..span.end.max(found.end)
        });
        Place { line, item, path, bounds }
    }
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
