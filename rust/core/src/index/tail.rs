//! The last bytes of a map whose entries are counted in blocks: enough to read its last entry again.

use crate::scan::Isa;
use crate::scan::nesting::Nesting;

/// Bytes that are kept or dropped together. A multiple of it is a boundary in every payload, however it is cut.
pub(super) const SEGMENT_BYTES: u64 = 4096;

/// Bytes of a map before its entries are counted in blocks. An entry that is skipped is smaller, so no collection in
/// it has more than half of the map's bytes.
pub(super) const MIN_MAP_BYTES: u64 = 256 * 1024;

/// An entry that reaches this size is read again from its start, because it may hold the main collection.
const MAX_SKIPPED_BYTES: usize = 128 * 1024;

#[derive(Debug, Clone)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    /// The state before the first byte, and the commas of the map in the first segment.
    start: Nesting,
    commas: u64,
    /// Where the current segment begins, the state there, and the commas of the map in it.
    segment: usize,
    segment_start: Nesting,
    segment_commas: u64,
}

impl Tail {
    /// Creates the tail of a map, at the start of an entry.
    pub(super) fn new() -> Self {
        let inside = Nesting::inside();
        Self {
            bytes: Vec::new(),
            start: inside,
            commas: 0,
            segment: 0,
            segment_start: inside,
            segment_commas: 0,
        }
    }

    /// Forgets everything but keeps the memory.
    pub(super) fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = Self { bytes, ..Self::new() };
    }

    /// Adds bytes of the current segment.
    pub(super) fn push(&mut self, bytes: &[u8], commas: u64) {
        self.bytes.extend_from_slice(bytes);
        self.segment_commas += commas;
    }

    /// Ends the current segment; `nesting` is the state after it. Drops what is before the last entry's segment.
    pub(super) fn end_segment(&mut self, nesting: Nesting) {
        if self.segment_commas > 0 {
            self.bytes.drain(..self.segment);
            (self.start, self.commas) = (self.segment_start, self.segment_commas);
        }
        (self.segment, self.segment_start, self.segment_commas) = (self.bytes.len(), nesting, 0);
    }

    /// Takes the last entry, as far as it was read, if it is large. Only between segments.
    pub(super) fn take_large_entry(&mut self, isa: Isa) -> Option<Vec<u8>> {
        if self.bytes.len() < MAX_SKIPPED_BYTES {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        if self.commas > 0 {
            let mut nesting = self.start;
            let consumed = nesting.seek(isa, &bytes, self.commas).consumed;
            bytes.drain(..consumed);
        }
        Some(bytes)
    }
}
