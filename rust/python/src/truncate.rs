//! `truncate`: an overview of a JSON document within a budget.

use headgate_core::Limits;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::CoreError;
use crate::payload::Payload;

#[pyfunction]
#[pyo3(signature = (data, *, max_bytes=10240, max_array_items=10, max_string_chars=500, max_depth=4, max_object_keys=100))]
pub fn truncate<'py>(
    py: Python<'py>,
    data: Payload,
    max_bytes: usize,
    max_array_items: usize,
    max_string_chars: usize,
    max_depth: usize,
    max_object_keys: usize,
) -> Result<Bound<'py, PyBytes>, CoreError> {
    let limits = Limits { max_bytes, max_array_items, max_string_chars, max_depth, max_object_keys };
    let answer = data.detached(py, |data| headgate_core::truncate(data, &limits))?;
    Ok(PyBytes::new(py, &answer))
}
