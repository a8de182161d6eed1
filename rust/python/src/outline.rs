//! `outline`: the shape of a document in one line.

use pyo3::prelude::*;

use crate::convert::{int, to_usize};
use crate::error::CoreError;
use crate::index::ItemIndex;
use crate::payload::Payload;

/// What is known of a document's items.
#[derive(FromPyObject)]
pub enum Items {
    Index(Py<ItemIndex>),
    /// The start of the array or map, and its number of items.
    Sample(u64, u64),
}

/// Return the shape of a JSON document in one line, e.g. `{statuses: [{id: int, place?: {…}}] ×100}`.
///
/// The outline takes at most `max_bytes` (at least 8), and a larger budget never shows less. Only the values
/// that are read are validated: the first 100 items of an array, 32 levels. With `items`, the index of valid
/// `data`, the other indexed items are not even read. If `data` has only the first items of an array, `items`
/// is its start and its number of items.
#[pyfunction]
#[pyo3(signature = (data, max_bytes = 512, *, items = None))]
pub fn outline(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
    items: Option<Items>,
) -> PyResult<String> {
    let outline = |data: &[u8]| {
        let max_bytes = to_usize("max_bytes", max_bytes)?;
        match &items {
            None => forebay_core::outline(data, max_bytes),
            Some(Items::Sample(start, count)) => {
                forebay_core::outline_sample(data, max_bytes, *start, *count)
            }
            Some(Items::Index(index)) => forebay_core::outline_indexed(data, max_bytes, &index.get().0),
        }
    };
    Ok(data.detach(py, outline).map_err(CoreError::from)?)
}
