//! `to_ndjson`, `csv_columns`, `to_csv` and `name_rows`: items in the formats of files.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::{int, to_usize};
use crate::error::CoreError;
use crate::payload::Payload;

/// Return the items of a JSON array as NDJSON.
#[pyfunction]
pub fn to_ndjson(py: Python<'_>, items: Payload) -> Result<Bound<'_, PyBytes>, CoreError> {
    let lines = items.detach(py, forebay_core::to_ndjson)?;
    Ok(PyBytes::new(py, &lines))
}

/// Return the keys of the objects in a JSON array, each once, in the order in which they are first seen.
///
/// Items that are not objects have the key `_value`. Raise `InvalidArgument` for more than `limit` keys.
#[pyfunction]
pub fn csv_columns(
    py: Python<'_>,
    items: Payload,
    #[pyo3(from_py_with = int::limit)] limit: i64,
) -> Result<Vec<String>, CoreError> {
    let limit = to_usize("limit", limit)?;
    Ok(items.detach(py, |items| forebay_core::csv_columns(items, limit))?)
}

/// Return the items of a JSON array as rows of CSV with these columns, without a header.
#[pyfunction]
pub fn to_csv(py: Python<'_>, items: Payload, columns: Vec<String>) -> Result<Bound<'_, PyBytes>, CoreError> {
    let rows = items.detach(py, |items| forebay_core::to_csv(items, &columns))?;
    Ok(PyBytes::new(py, &rows))
}

/// Return rows, a JSON array of arrays, as a JSON array of objects with these names as keys.
///
/// Raise `InvalidArgument` if that takes more than `max_bytes`.
#[pyfunction]
pub fn name_rows<'py>(
    py: Python<'py>,
    rows: Payload,
    names: Vec<String>,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
) -> Result<Bound<'py, PyBytes>, CoreError> {
    let max_bytes = to_usize("max_bytes", max_bytes)?;
    let items = rows.detach(py, |rows| forebay_core::name_rows(rows, &names, max_bytes))?;
    Ok(PyBytes::new(py, &items))
}
