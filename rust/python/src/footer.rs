//! `build_footer` and `parse_footer`.

use std::ops::Range;

use forebay_core::footer::{self, Parsed, SeekEntry};
use forebay_core::index;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::CoreError;
use crate::index::ItemIndex;

/// Stored size of a frame, payload bytes in it, and its checksum.
type Entry = (u32, u32, u32);

/// The metadata as JSON, the index of the items, that of the lines, and the frames.
type Footer<'py> = (Bound<'py, PyBytes>, Option<Py<ItemIndex>>, Option<Py<ItemIndex>>, Vec<Entry>);

#[derive(IntoPyObject)]
pub enum Answer<'py> {
    Needs(u64),
    Footer(Footer<'py>),
}

/// Return the footer of a stored file.
#[pyfunction]
pub fn build_footer<'py>(
    py: Python<'py>,
    metadata: &[u8],
    items: Option<&ItemIndex>,
    lines: Option<&ItemIndex>,
    frames: Vec<Entry>,
) -> PyResult<Bound<'py, PyBytes>> {
    // An index of no items takes some bytes, so it differs from no index.
    let [items, lines] =
        [items, lines].map(|index| index.map(|index| index.0.to_bytes()).unwrap_or_default());
    let frames: Vec<_> = frames
        .into_iter()
        .map(|(stored_bytes, plain_bytes, checksum)| SeekEntry { stored_bytes, plain_bytes, checksum })
        .collect();
    let footer = py.detach(|| footer::build(metadata, &items, &lines, &frames)).map_err(CoreError::from)?;
    Ok(PyBytes::new(py, &footer))
}

/// Parse the footer of a file of `file_bytes`, which ends with `tail`.
///
/// If `tail` is too short, return how long the footer is. Raise `CorruptIndex` if the footer is damaged.
#[pyfunction]
pub fn parse_footer<'py>(py: Python<'py>, tail: &[u8], file_bytes: u64) -> PyResult<Answer<'py>> {
    let parsed = py.detach(|| footer::parse(tail, file_bytes)).map_err(CoreError::from)?;
    let (metadata, items, lines, frames) = match parsed {
        Parsed::Needs(bytes) => return Ok(Answer::Needs(bytes)),
        Parsed::Footer { metadata, items, lines, frames } => (metadata, items, lines, frames),
    };
    let load = |range: Range<usize>| match &tail[range] {
        [] => Ok(None),
        bytes => {
            Py::new(py, ItemIndex(index::ItemIndex::from_bytes(bytes).map_err(CoreError::from)?)).map(Some)
        }
    };
    let frames = frames.iter().map(|entry| (entry.stored_bytes, entry.plain_bytes, entry.checksum)).collect();
    Ok(Answer::Footer((PyBytes::new(py, &tail[metadata]), load(items)?, load(lines)?, frames)))
}
