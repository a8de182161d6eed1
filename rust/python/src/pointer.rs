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
/// Raise `PathNotFound` if there is no value. `""` is the whole payload. If a key is repeated, the first one
/// counts. In NDJSON the first token of the pointer is the number of a value. Only the value is validated,
/// not the bytes before it.
#[pyfunction]
pub fn get<'py>(
    py: Python<'py>,
    data: Payload,
    #[pyo3(from_py_with = text::pointer)] pointer: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let span = find(py, &data, pointer)?;
    Ok(PyBytes::new(py, &data.as_slice(py)[span]))
}

/// Return the span of the value that `get` returns, `data[start:end]`.
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
