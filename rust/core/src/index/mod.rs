//! Item indexes: where the items of a payload are, with one entry per 64 KiB block, whatever the size of the
//! items.

mod builder;
mod chunks;
mod finder;
mod format;
mod indexer;
mod locator;
mod map_detector;
mod objects;
mod parallel;
mod tail;

use crate::csv::Columns;
use crate::error::{Error, Result};
use crate::range::Range;

pub use chunks::Chunk;
pub(crate) use finder::ItemFinder;
pub(crate) use indexer::RowIndexer;
pub use indexer::{ItemIndexer, LineIndexer, index_items, index_lines};
pub(crate) use map_detector::{MIN_MAP_OBJECTS, MIN_MAP_SCALARS};
pub use parallel::index_items_in_two;

/// Bytes of the payload per entry.
pub(crate) const BLOCK_BYTES: u64 = 64 * 1024;

/// Kind of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value in an array.
    Array,
    /// A value of NDJSON, one per line.
    Ndjson,
    /// A line of text.
    Lines,
    /// A row of CSV, without the header.
    Csv,
    /// A row of TSV, without the header.
    Tsv,
    /// An entry of an object: its value with the key as `_key`.
    Map,
}

impl Kind {
    /// Returns the byte between two fields of a row; `None` unless the items are rows.
    pub(crate) fn delimiter(self) -> Option<u8> {
        match self {
            Self::Csv => Some(b','),
            Self::Tsv => Some(b'\t'),
            Self::Array | Self::Map | Self::Ndjson | Self::Lines => None,
        }
    }
}

/// The first item of a block.
///
/// An item of an array or map begins right after the bracket or comma before it, leading white space included; an
/// NDJSON value begins at its first byte that is not white space; a line or row begins at its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) offset: u64,
    pub(crate) number: u64,
}

/// Where the items of a payload are. Small, and does not borrow the payload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ItemIndex {
    kind: Option<Kind>,
    path: Option<String>,
    start: u64,
    end: u64,
    count: u64,
    entries: Vec<Entry>,
    /// Everything before the first row of CSV or TSV; empty for other items.
    header: Vec<u8>,
}

/// Bytes that contain the requested items, and possibly others around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first byte of item `first`.
    pub start: u64,
    /// The byte after the last requested item, or after the block it ends in.
    pub end: u64,
    /// The number of the item that begins at `start`.
    pub first: u64,
    /// How many of the requested items exist.
    pub count: u64,
}

impl ItemIndex {
    /// Returns the kind of items; `None` if there are none.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Returns the byte between two fields of a row; `None` unless the items are rows of CSV or TSV.
    pub(crate) fn delimiter(&self) -> Option<u8> {
        self.kind.and_then(Kind::delimiter)
    }

    /// Returns the columns of CSV or TSV; `None` for other items.
    pub(crate) fn columns(&self) -> Option<Columns> {
        Some(Columns::parse(&self.header, self.delimiter()?))
    }

    /// Returns the names of the columns, which are the keys of each item; `None` unless the items are rows of CSV or
    /// TSV.
    #[must_use]
    pub fn column_names(&self) -> Option<Vec<String>> {
        self.columns().map(Columns::into_names)
    }

    pub(crate) fn is_ndjson(&self) -> bool {
        self.kind == Some(Kind::Ndjson)
    }

    /// Whether the items are values directly inside an array or object.
    pub(crate) fn is_container(&self) -> bool {
        matches!(self.kind, Some(Kind::Array | Kind::Map))
    }

    /// Whether the items are entries of an object.
    pub(crate) fn is_map(&self) -> bool {
        self.kind == Some(Kind::Map)
    }

    /// Returns the JSON Pointer of the items' array or map; empty if it is the whole document, and for NDJSON and
    /// rows.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns the offset of the array's or map's opening bracket, or of the first line; 0 for rows.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the offset after the array's or map's closing bracket, or after the last line.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the bytes to read to get these items whole.
    #[must_use]
    pub fn span(&self, range: Range) -> Span {
        let items = range.resolve(self.count);
        let count = items.end - items.start;
        if count == 0 {
            return Span { start: self.end, end: self.end, first: self.count, count };
        }
        let from = self.entry_before(items.start);
        // The first entry past the last item bounds it from above.
        let next = self.entries.partition_point(|entry| entry.number < items.end);
        let end = self.entries.get(next).map_or(self.end, |entry| entry.offset);
        Span { start: from.offset, end, first: from.number, count }
    }

    /// Returns the last entry at or before an item.
    pub(crate) fn entry_before(&self, number: u64) -> Entry {
        let after = self.entries.partition_point(|entry| entry.number <= number);
        after.checked_sub(1).map_or(Entry { offset: self.start, number: 0 }, |last| self.entries[last])
    }

    /// Returns the last entry at or before a byte.
    pub(crate) fn entry_at(&self, offset: u64) -> Option<Entry> {
        let after = self.entries.partition_point(|entry| entry.offset <= offset);
        self.entries[..after].last().copied()
    }

    /// Returns the first entry after an item.
    pub(crate) fn entry_after(&self, number: u64) -> Option<Entry> {
        let after = self.entries.partition_point(|entry| entry.number <= number);
        self.entries.get(after).copied()
    }

    /// Returns the index if it is consistent. Only a loaded index can be inconsistent.
    fn validate(self) -> Result<Self> {
        let mut before = None;
        for entry in &self.entries {
            let is_first = before.is_none();
            if is_first != (entry.number == 0)
                || before.is_some_and(|Entry { offset, number }| {
                    entry.offset / BLOCK_BYTES <= offset / BLOCK_BYTES || entry.number <= number
                })
                || entry.number >= self.count
                || entry.offset < self.start
                || entry.offset >= self.end
            {
                return Err(Error::index("entries out of order"));
            }
            before = Some(*entry);
        }
        let is_kind_right = match (self.kind, self.path.as_deref()) {
            (None, None) => self.end == 0 && self.count == 0,
            (Some(Kind::Array | Kind::Map), Some(_)) | (Some(Kind::Lines), None) => true,
            (Some(Kind::Ndjson | Kind::Csv | Kind::Tsv), Some("")) => true,
            _ => false,
        };
        if !is_kind_right {
            return Err(Error::index("kind and items disagree"));
        }
        if self.entries.is_empty() != (self.count == 0) || self.start > self.end {
            return Err(Error::index("count and entries disagree"));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
