//! `get` and `locate`: values by JSON Pointer.

use std::ops::Range;

use forebay_core::pointer::{self, Pointer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::text;
use crate::error::CoreError;
use crate::payload::Payload;

/// Return the value at a JSON Pointer (`/users/0/name`), copied verbatim.
///
/// Raise `PathNotFound` if there is none. `""` is the whole payload; of equal keys the first one counts; in
/// NDJSON the first token is the number of a value. The value is validated, but nothing that was skipped on
/// the way to it.
#[pyfunction]
pub fn get<'py>(
    py: Python<'py>,
    data: Payload,
    #[pyo3(from_py_with = text::pointer)] pointer: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let span = find(py, &data, pointer)?;
    Ok(PyBytes::new(py, &data.as_slice(py)[span]))
}

/// Return the span of the value that `get` returns: it is `data[start:end]`.
#[pyfunction]
pub fn locate(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = text::pointer)] pointer: &str,
) -> PyResult<(usize, usize)> {
    let span = find(py, &data, pointer)?;
    Ok((span.start, span.end))
}

fn find(py: Python<'_>, data: &Payload, pointer: &str) -> Result<Range<usize>, CoreError> {
    let pointer = Pointer::parse(pointer)?;
    Ok(data.detach(py, |data| pointer::locate(data, &pointer))?)
}
