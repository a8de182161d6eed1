//! `project`: items with only some of their fields; `has_fields`: whether items have any of some fields.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::fields;
use crate::error::CoreError;
use crate::payload::Payload;

/// Return the items of an array, an object or NDJSON with the named fields only.
///
/// A field is a path of keys joined by dots (`user.name`; `\.` is a dot in a key, `\\` a backslash), or a
/// JSON Pointer. Nesting and the number of items are kept: an item that is not an object becomes `null`.
/// Only the returned values are validated.
#[pyfunction]
pub fn project<'py>(
    py: Python<'py>,
    data: Payload,
    #[pyo3(from_py_with = fields)] fields: Vec<String>,
) -> PyResult<Bound<'py, PyBytes>> {
    let projection =
        data.detach(py, |data| forebay_core::project::project(data, &fields)).map_err(CoreError::from)?;
    Ok(PyBytes::new(py, &projection))
}

/// Return whether any item has any of the fields that `project` would keep.
#[pyfunction]
pub fn has_fields(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = fields)] fields: Vec<String>,
) -> PyResult<bool> {
    Ok(data.detach(py, |data| forebay_core::project::has_fields(data, &fields)).map_err(CoreError::from)?)
}
