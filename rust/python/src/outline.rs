//! `outline`: the shape of a document in one line.

use pyo3::prelude::*;

use crate::convert::{int, size};
use crate::error::CoreError;
use crate::payload::Payload;

#[pyfunction]
#[pyo3(signature = (data, max_bytes = 512))]
pub fn outline(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = int)] max_bytes: i64,
) -> PyResult<String> {
    let outline = |data: &[u8]| headgate_core::outline(data, size("max_bytes", max_bytes)?);
    Ok(data.detached(py, outline).map_err(CoreError::from)?)
}
