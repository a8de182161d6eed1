//! `truncate`: an overview of a JSON document within a budget.

use forebay_core::Limits;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::{int, to_usize};
use crate::error::CoreError;
use crate::payload::Payload;

/// Return an overview of a JSON document: valid JSON, never longer than `max_bytes`.
///
/// Long arrays become `{"items": […], "totalCount": n, "showing": k}`, long strings end in `...`, and values
/// that are too deep become `"[truncated]"` unless they are as short as that. A larger budget never shows less. Only the shown parts are
/// validated.
#[pyfunction]
#[pyo3(signature = (data, *, max_bytes=10240, max_array_items=10, max_string_chars=500, max_depth=4, max_object_keys=100))]
pub fn truncate<'py>(
    py: Python<'py>,
    data: Payload,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
    #[pyo3(from_py_with = int::max_array_items)] max_array_items: i64,
    #[pyo3(from_py_with = int::max_string_chars)] max_string_chars: i64,
    #[pyo3(from_py_with = int::max_depth)] max_depth: i64,
    #[pyo3(from_py_with = int::max_object_keys)] max_object_keys: i64,
) -> Result<Bound<'py, PyBytes>, CoreError> {
    let limits = Limits {
        max_bytes: to_usize("max_bytes", max_bytes)?,
        max_array_items: to_usize("max_array_items", max_array_items)?,
        max_string_chars: to_usize("max_string_chars", max_string_chars)?,
        max_depth: to_usize("max_depth", max_depth)?,
        max_object_keys: to_usize("max_object_keys", max_object_keys)?,
    };
    let overview = data.detach(py, |data| forebay_core::truncate(data, &limits))?;
    Ok(PyBytes::new(py, &overview))
}
