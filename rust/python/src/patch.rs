//! `patch`: a document with some of its values changed.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyList};

use crate::convert::{int, to_u64};
use crate::error::CoreError;
use crate::payload::Payload;

/// Return a JSON document with the operations of a JSON Patch (RFC 6902) applied to it.
///
/// The operations are a list such as `[{"op": "replace", "path": "/title", "value": "New"}]`, or that list as
/// JSON. Whatever they do not name keeps its bytes. Raise `PatchFailed` if an operation fails or makes the
/// document larger than `max_bytes`. If a key is repeated, the first one counts, and a change removes the others.
#[pyfunction]
#[pyo3(signature = (data, operations, *, max_bytes = 1 << 30))]
pub fn patch<'py>(
    py: Python<'py>,
    data: Payload,
    operations: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
) -> PyResult<Bound<'py, PyBytes>> {
    let max_bytes = to_u64("max_bytes", max_bytes).map_err(CoreError::from)?;
    let operations: Payload = match operations.cast::<PyList>() {
        Ok(list) => dump(list)?.extract()?,
        Err(_) => operations.extract()?,
    };
    let operations = operations.as_slice(py);
    let patched =
        data.detach(py, |data| forebay_core::patch(data, operations, max_bytes)).map_err(CoreError::from)?;
    Ok(PyBytes::new(py, &patched))
}

fn dump<'py>(list: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyAny>> {
    let options = [("ensure_ascii", false), ("allow_nan", false)].into_py_dict(list.py())?;
    list.py().import("json")?.call_method("dumps", (list,), Some(&options))
}
