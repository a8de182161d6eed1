//! Chunks: runs of blocks that hold whole items, for reading a payload in pieces.

use super::ItemIndex;

/// A part of a payload that holds whole items: one block of the index, or several in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of the first byte, which begins an item.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
    /// Number of the first item.
    pub first: u64,
    /// How many items begin in the chunk; all of them end in it.
    pub count: u64,
    /// Number of the first block.
    pub block: usize,
    /// How many blocks it has.
    pub block_count: usize,
}

impl ItemIndex {
    /// Returns the number of blocks, each of which begins with an item.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.entries.len()
    }

    /// Returns the chunk that begins with a block: as many blocks as fit into `max_bytes`, but at least one. `None`
    /// after the last block.
    #[must_use]
    pub fn chunk(&self, block: usize, max_bytes: u64) -> Option<Chunk> {
        let from = self.entries.get(block)?;
        let limit = from.offset.saturating_add(max_bytes);
        let after = block + 1 + self.entries[block + 1..].partition_point(|entry| entry.offset <= limit);
        // The entry that was found begins a chunk of its own, unless the rest of the payload fits as well.
        let next = if after == self.entries.len() && self.end <= limit { after } else { after - 1 };
        let next = next.max(block + 1);
        let (end, number) =
            self.entries.get(next).map_or((self.end, self.count), |entry| (entry.offset, entry.number));
        Some(Chunk {
            start: from.offset,
            end,
            first: from.number,
            count: number - from.number,
            block,
            block_count: next - block,
        })
    }

    /// Returns the numbers of the first items of a chunk's blocks.
    pub(crate) fn block_starts(&self, chunk: &Chunk) -> impl Iterator<Item = u64> {
        let blocks = chunk.block..chunk.block.saturating_add(chunk.block_count);
        self.entries.get(blocks).unwrap_or_default().iter().map(|entry| entry.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{BLOCK_BYTES, index_items};

    #[test]
    fn chunks_hold_all_items_once() {
        let large = format!("\"{}\"", "x".repeat(3 * BLOCK_BYTES as usize));
        let small = vec!["[1, 2, 3]"; 40_000].join(", ");
        let data = format!("{{\"a\": [{small}, {large}, {small}, {large}]}}");
        let index = index_items(data.as_bytes(), None, true).unwrap();
        for max_bytes in [0, 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 7, 5 * BLOCK_BYTES, u64::MAX] {
            let (mut block, mut first, mut start) = (0, 0, index.entries[0].offset);
            while let Some(chunk) = index.chunk(block, max_bytes) {
                assert_eq!((chunk.block, chunk.first, chunk.start), (block, first, start));
                assert!(chunk.count > 0 && chunk.block_count > 0);
                assert!(chunk.block_count == 1 || chunk.end - chunk.start <= max_bytes);
                // Another block would not have fit.
                let longer =
                    index.entries.get(block + chunk.block_count + 1).map_or(index.end, |entry| entry.offset);
                assert!(chunk.end == index.end || longer - chunk.start > max_bytes);
                (block, first, start) = (block + chunk.block_count, first + chunk.count, chunk.end);
            }
            assert_eq!((block, first, start), (index.block_count(), index.len(), index.end()));
        }
        assert_eq!(ItemIndex::default().chunk(0, 1), None);
    }
}
