//! What pages of items and of lines have in common.

/// An item or line that was larger than the page's budget and came back cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Its number.
    pub index: u64,
    /// Its whole size.
    pub size_bytes: u64,
    /// Where to read on from: an item's first byte, or the byte after what was shown of a line.
    pub byte_offset: u64,
}
