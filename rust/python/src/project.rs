//! `project`: items with a few of their fields; `has_fields`: whether they have any.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::fields;
use crate::error::CoreError;
use crate::payload::Payload;

/// The items of an array, an object or NDJSON, with the named fields only.
///
/// A field is a path of keys joined by dots (`user.name`; `\.` is a dot in a key, `\\` a backslash), or a JSON
/// Pointer. The shape stays, and counts do: an item that is not an object becomes `null`. What is returned is checked;
/// what is left out is trusted to be JSON.
#[pyfunction]
pub fn project<'py>(
    py: Python<'py>,
    data: Payload,
    #[pyo3(from_py_with = fields)] fields: Vec<String>,
) -> PyResult<Bound<'py, PyBytes>> {
    let projected =
        data.detached(py, |data| forebay_core::project::project(data, &fields)).map_err(CoreError::from)?;
    Ok(PyBytes::new(py, &projected))
}

/// Whether any item has any of the fields that `project` would keep.
#[pyfunction]
pub fn has_fields(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = fields)] fields: Vec<String>,
) -> PyResult<bool> {
    Ok(data.detached(py, |data| forebay_core::project::has_fields(data, &fields)).map_err(CoreError::from)?)
}
