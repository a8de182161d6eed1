use pyo3::prelude::*;

use crate::convert::{count, int};
use crate::error::CoreError;
use crate::payload::Payload;

/// The first and last lines of a text, and between them `[... 1,234 lines left out ...]`; never over `max_bytes`.
///
/// Lines over an equal share of the budget are cut and say so. A budget under 64 is refused.
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
        let (head, tail) = (count("head", head)?, count("tail", tail)?);
        forebay_core::truncate_lines(data, head, tail, count("max_bytes", max_bytes)?)
    };
    Ok(data.detached(py, truncate).map_err(CoreError::from)?)
}
