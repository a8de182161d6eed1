//! `get` and `locate`: values by JSON Pointer.

use std::ops::Range;

use headgate_core::pointer::{self, Pointer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::CoreError;
use crate::payload::Payload;

#[pyfunction]
pub fn get<'py>(py: Python<'py>, data: Payload, pointer: &str) -> PyResult<Bound<'py, PyBytes>> {
    let span = find(py, &data, pointer)?;
    Ok(PyBytes::new(py, &data.as_slice(py)[span]))
}

#[pyfunction]
pub fn locate(py: Python<'_>, data: Payload, pointer: &str) -> PyResult<(usize, usize)> {
    let span = find(py, &data, pointer)?;
    Ok((span.start, span.end))
}

fn find(py: Python<'_>, data: &Payload, pointer: &str) -> Result<Range<usize>, CoreError> {
    let pointer = Pointer::parse(pointer)?;
    Ok(data.detached(py, |data| pointer::locate(data, &pointer))?)
}
