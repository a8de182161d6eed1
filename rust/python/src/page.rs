use pyo3::prelude::*;

/// An item or line that exceeded the page's budget and was truncated.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct Cut {
    /// Number of the item or line.
    index: u64,
    /// Full size of the item or line in bytes; of an entry of a map, the size of its value.
    size_bytes: u64,
    /// Offset to continue reading at: an item's first byte, or the byte after the shown part of a line.
    byte_offset: u64,
}

impl From<forebay_core::Cut> for Cut {
    fn from(cut: forebay_core::Cut) -> Self {
        Self { index: cut.index, size_bytes: cut.size_bytes, byte_offset: cut.byte_offset }
    }
}

#[pymethods]
impl Cut {
    fn __repr__(&self) -> String {
        let Self { index, size_bytes, byte_offset } = self;
        format!("Cut(index={index}, size_bytes={size_bytes}, byte_offset={byte_offset})")
    }
}
