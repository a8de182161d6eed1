//! `project`: items with a few of their fields.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::CoreError;
use crate::payload::Payload;

#[pyfunction]
pub fn project<'py>(py: Python<'py>, data: Payload, fields: Vec<String>) -> PyResult<Bound<'py, PyBytes>> {
    let projected =
        data.detached(py, |data| headgate_core::project::project(data, &fields)).map_err(CoreError::from)?;
    Ok(PyBytes::new(py, &projected))
}
