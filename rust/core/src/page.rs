//! Shared by pages of items and pages of lines.

/// An item or line that exceeded the page's budget and was truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Its number.
    pub index: u64,
    /// Its full size in bytes; of an entry of a map, the size of its value.
    pub size_bytes: u64,
    /// Where to continue reading: an item's first byte (of an entry of a map, that of its value), or the byte after
    /// the shown part of a line.
    pub byte_offset: u64,
}
