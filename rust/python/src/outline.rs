//! `outline`: the shape of a document in one line.

use pyo3::prelude::*;

use crate::error::CoreError;
use crate::payload::Payload;

#[pyfunction]
#[pyo3(signature = (data, max_bytes = 512))]
pub fn outline(py: Python<'_>, data: Payload, max_bytes: isize) -> PyResult<String> {
    // Less than nothing is refused like any budget that is too small.
    let max_bytes = usize::try_from(max_bytes).unwrap_or(0);
    Ok(data.detached(py, |data| headgate_core::outline::outline(data, max_bytes)).map_err(CoreError::from)?)
}
