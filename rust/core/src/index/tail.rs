//! The last bytes of a map whose entries are counted in blocks: enough to read its last entry again.

use crate::scan::Isa;
use crate::scan::nesting::Nesting;

/// Bytes that are kept or dropped together: a segment. Segments start at multiples of this size, however the payload is
/// cut into pieces.
pub(super) const SEGMENT_BYTES: u64 = 4096;

/// Bytes of a map before its entries are counted in blocks. An entry that is skipped is smaller, so no collection in
/// it has more than half of the map's bytes.
pub(super) const MIN_MAP_BYTES: u64 = 256 * 1024;

/// An entry that reaches this size is read again from its start, because it may hold the main collection.
const MAX_SKIPPED_BYTES: usize = 128 * 1024;

/// Bytes of a map, and what is needed to read them again.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    bytes: Vec<u8>,
    /// The state before the first byte.
    start: Nesting,
    /// The commas of the map in the first segment.
    commas: u64,
}

impl Part {
    fn new() -> Self {
        Self { bytes: Vec::new(), start: Nesting::inside(), commas: 0 }
    }

    /// Removes all bytes but keeps the memory.
    fn restart(&mut self, start: Nesting) {
        self.bytes.clear();
        (self.start, self.commas) = (start, 0);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tail {
    /// The segments from the last one with a comma of the map on.
    whole: Part,
    /// The current segment, as far as it was read.
    segment: Part,
}

impl Tail {
    pub(super) fn new() -> Self {
        Self { whole: Part::new(), segment: Part::new() }
    }

    /// Begins at the start of an entry.
    pub(super) fn restart(&mut self) {
        self.whole.restart(Nesting::inside());
        self.segment.restart(Nesting::inside());
    }

    /// Begins with the start of an entry, up to the end of a segment; `nesting` is the state there.
    pub(super) fn restart_with(&mut self, entry: &[u8], nesting: Nesting) {
        self.whole.restart(Nesting::inside());
        self.whole.bytes.extend_from_slice(entry);
        self.segment.restart(nesting);
    }

    /// Adds bytes of the current segment.
    pub(super) fn push(&mut self, bytes: &[u8], commas: u64) {
        self.segment.bytes.extend_from_slice(bytes);
        self.segment.commas += commas;
    }

    /// Ends the current segment; `nesting` is the state after it. Drops what is before the last entry's segment.
    pub(super) fn end_segment(&mut self, nesting: Nesting) {
        if self.segment.commas > 0 {
            std::mem::swap(&mut self.whole, &mut self.segment);
        } else {
            self.whole.bytes.extend_from_slice(&self.segment.bytes);
        }
        self.segment.restart(nesting);
    }

    /// Takes the last entry, as far as it was read, if it is large. To be called only between segments.
    pub(super) fn take_large_entry(&mut self, isa: Isa) -> Option<Vec<u8>> {
        if self.whole.bytes.len() < MAX_SKIPPED_BYTES {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.whole.bytes);
        if self.whole.commas > 0 {
            let mut nesting = self.whole.start;
            let consumed = nesting.seek(isa, &bytes, self.whole.commas).consumed;
            bytes.drain(..consumed);
        }
        Some(bytes)
    }
}
