//! Builds an index while items are found.

use super::{BLOCK_BYTES, Entry, ItemIndex, Kind};
use crate::scan::Isa;
use crate::scan::nesting::{Nesting, Progress, Stop};
use crate::scan::rows::Rows;
use crate::validate::Counted;

/// Counts items, and records an entry for the first item of each block.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct IndexBuilder {
    count: u64,
    entries: Vec<Entry>,
    /// Start of the next block, where the next entry may begin.
    next_block: u64,
}

impl IndexBuilder {
    /// Removes all items but keeps the memory.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        (self.count, self.next_block) = (0, 0);
    }

    /// Takes the items that begin before `pos`, where the payload is cut. From there on it counts from 0 again.
    pub(super) fn take_before(&mut self, pos: u64) -> Self {
        let next_block = self.next_block.max(pos);
        std::mem::replace(self, Self { next_block, ..Self::default() })
    }

    /// Counts an item that begins at `offset`, and records it if it is the first of its block.
    pub(super) fn push(&mut self, offset: u64) {
        if offset >= self.next_block {
            self.entries.push(Entry { offset, number: self.count });
            self.next_block = (offset / BLOCK_BYTES + 1) * BLOCK_BYTES;
        }
        self.count += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns how many of the `len` bytes at `pos` only need counting: no item that begins in them gets an
    /// entry.
    #[inline]
    pub(super) fn countable(&self, pos: u64, len: usize) -> usize {
        usize::try_from(self.next_block.saturating_sub(pos)).map_or(len, |count| count.min(len))
    }

    pub(super) fn add_count(&mut self, count: u64) {
        self.count += count;
    }

    /// Scans values inside an array or object, or some of them; the next call continues.
    pub(super) fn scan_values(
        &mut self,
        nesting: &mut Nesting,
        isa: Isa,
        pos: u64,
        bytes: &[u8],
    ) -> Progress {
        // A value begins right after its comma, so the comma of one that begins in the next block may be a byte
        // before it.
        let countable = self.countable(pos + 1, bytes.len());
        if countable > 0 {
            let progress = nesting.close(isa, &bytes[..countable]);
            self.add_count(progress.commas);
            return progress;
        }
        let progress = nesting.seek(isa, bytes, 1);
        if progress.stop == Stop::Reached {
            self.push(pos + progress.consumed as u64);
        }
        progress
    }

    /// Counts the values in bytes of one block, which the validator has read. Returns false if the bytes have to be
    /// scanned.
    pub(super) fn skip_values(
        &mut self,
        mut nesting: Nesting,
        isa: Isa,
        pos: u64,
        bytes: &[u8],
        counted: &Counted,
    ) -> bool {
        // A value that begins after the last byte may be in the next block.
        if counted.nesting.is_directly_inside() && bytes.last() == Some(&b',') {
            return false;
        }
        let mut commas = counted.separators;
        if commas > 0 && self.next_block <= pos {
            let progress = nesting.seek(isa, bytes, 1);
            self.push(pos + progress.consumed as u64);
            commas -= 1;
        }
        self.count += commas;
        true
    }

    /// Counts the rows in bytes of one block, which the validator has read.
    pub(super) fn skip_rows(&mut self, rows: &mut Rows, isa: Isa, pos: u64, bytes: &[u8], counted: &Counted) {
        let after = rows.after(bytes);
        // The validator counts only if no line is blank, so each newline has a row after it: in these bytes or later.
        let mut starts =
            counted.separators + u64::from(rows.is_before_line()) - u64::from(after.is_before_line());
        if starts > 0 && self.next_block <= pos {
            starts -= 1;
            if let Some(start) = rows.seek(isa, bytes, 1).reached {
                self.push(pos + start as u64);
            }
        }
        self.count += starts;
        *rows = after;
    }

    /// Scans rows. Returns how many bytes were consumed; if none, the next call consumes some.
    pub(super) fn scan_rows(&mut self, rows: &mut Rows, isa: Isa, pos: u64, bytes: &[u8]) -> usize {
        let countable = self.countable(pos, bytes.len());
        if countable > 0 {
            self.add_count(rows.count(isa, &bytes[..countable]));
            return countable;
        }
        let Some(start) = rows.seek(isa, bytes, 1).reached else { return bytes.len() };
        self.push(pos + start as u64);
        start
    }

    pub(super) fn into_index(self, kind: Kind, path: Option<String>, start: u64, end: u64) -> ItemIndex {
        let header = Vec::new();
        ItemIndex { kind: Some(kind), path, start, end, count: self.count, entries: self.entries, header }
    }

    /// Adds these items ahead of those of an index of the same collection.
    pub(super) fn prepend_to(self, index: &mut ItemIndex) {
        let mut entries = self.entries;
        let later = std::mem::take(&mut index.entries).into_iter();
        entries.extend(later.map(|entry| Entry { number: entry.number + self.count, ..entry }));
        (index.count, index.entries) = (index.count + self.count, entries);
    }
}
