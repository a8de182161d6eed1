//! `get` and `locate`: values by JSON Pointer.

use std::ops::Range;

use forebay_core::pointer::{self, Pointer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::text;
use crate::error::CoreError;
use crate::payload::Payload;

/// The value at a JSON Pointer (`/users/0/name`), as it stands in the payload.
///
/// Raises `PathNotFound`. `""` is everything; of equal keys the first is meant; in NDJSON the first token is the
/// number of a value. The value is checked; what was passed over on the way is trusted to be JSON.
#[pyfunction]
pub fn get<'py>(
    py: Python<'py>,
    data: Payload,
    #[pyo3(from_py_with = text::pointer)] pointer: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let span = find(py, &data, pointer)?;
    Ok(PyBytes::new(py, &data.as_slice(py)[span]))
}

/// Where `get` finds its value: `data[start:end]`.
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
    Ok(data.detached(py, |data| pointer::locate(data, &pointer))?)
}
