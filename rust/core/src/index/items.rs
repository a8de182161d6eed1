//! Items as they are found.

use super::{BLOCK, Entry, ItemIndex, Kind};
use crate::scan::Isa;
use crate::scan::rows::Rows;

/// Items found so far, an entry for each block that one begins in.
#[derive(Debug, Clone, Default)]
pub(super) struct Items {
    count: u64,
    entries: Vec<Entry>,
    /// The first byte an item must begin at to get an entry: the start of the next block.
    next_block: u64,
}

impl Items {
    /// Forgets all items and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.count = 0;
    }

    /// Counts an item that begins at `offset`, and enters it if it is the first of its block.
    pub(super) fn push(&mut self, offset: u64) {
        if self.entries.is_empty() || offset >= self.next_block {
            self.entries.push(Entry { offset, number: self.count });
            self.next_block = (offset / BLOCK + 1) * BLOCK;
        }
        self.count += 1;
    }

    /// How many of `len` bytes at `pos` can be passed by counting alone: no item that begins in them gets an
    /// entry.
    #[inline]
    pub(super) fn countable(&self, pos: u64, len: usize) -> usize {
        usize::try_from(self.next_block.saturating_sub(pos)).map_or(len, |count| count.min(len))
    }

    pub(super) fn add(&mut self, count: u64) {
        self.count += count;
    }

    /// Goes on over rows; how many bytes were taken, possibly none: then the next call takes some.
    pub(super) fn take_rows(&mut self, rows: &mut Rows, isa: Isa, pos: u64, bytes: &[u8]) -> usize {
        let countable = self.countable(pos, bytes.len());
        if countable > 0 {
            self.add(rows.count(isa, &bytes[..countable]));
            return countable;
        }
        let Some(start) = rows.seek(isa, bytes, 1).reached else { return bytes.len() };
        self.push(pos + start as u64);
        start
    }

    pub(super) fn into_index(self, kind: Kind, path: Option<String>, start: u64, end: u64) -> ItemIndex {
        ItemIndex { kind: Some(kind), path, start, end, count: self.count, entries: self.entries }
    }
}
