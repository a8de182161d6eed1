//! `outline`: the shape of a document in one line.

use pyo3::prelude::*;

use crate::convert::{int, size};
use crate::error::CoreError;
use crate::payload::Payload;

/// The shape of a JSON document in one line, e.g. `{statuses: [{id: int, place?: {…}}] ×100}`.
///
/// Never longer than `max_bytes` (at least 8), and a larger budget never shows less. Only what it reads is checked:
/// the first 100 items of an array, 32 levels.
#[pyfunction]
#[pyo3(signature = (data, max_bytes = 512))]
pub fn outline(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
) -> PyResult<String> {
    let outline = |data: &[u8]| forebay_core::outline(data, size("max_bytes", max_bytes)?);
    Ok(data.detached(py, outline).map_err(CoreError::from)?)
}
