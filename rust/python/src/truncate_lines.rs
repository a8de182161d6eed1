use pyo3::prelude::*;

use crate::convert::{int, to_u64};
use crate::error::CoreError;
use crate::payload::Payload;

/// Return the first and last lines of a text, with a note between them, in at most `max_bytes`.
///
/// The note is `[... 1,234 lines left out ...]`. Lines over an equal share of the budget are cut, and end in
/// a note as well. A budget under 64 is rejected.
#[pyfunction]
#[pyo3(signature = (data, head = 10, tail = 10, *, max_bytes = 10240))]
pub fn truncate_lines(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = int::head)] head: i64,
    #[pyo3(from_py_with = int::tail)] tail: i64,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
) -> PyResult<String> {
    let truncate = |data: &[u8]| {
        let (head, tail) = (to_u64("head", head)?, to_u64("tail", tail)?);
        forebay_core::truncate_lines(data, head, tail, to_u64("max_bytes", max_bytes)?)
    };
    Ok(data.detach(py, truncate).map_err(CoreError::from)?)
}
