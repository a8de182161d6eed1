use forebay_core::{Error, ErrorKind, Escaping};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::convert::{int, optional_int, optional_text, to_u64};
use crate::error::CoreError;
use crate::payload::Payload;

/// Return the longest whole prefix of at most `max_bytes`; `None` for binary data.
///
/// "Whole" means not cut inside a character or a JSON escape, nor inside a grapheme cluster, unless that
/// would make the prefix more than 64 bytes shorter. `max_escaped_bytes` also limits the size of the prefix
/// after JSON-escaping it `escape_levels` times (1 or 2).
///
/// With `whole` "lines", "csv" or "tsv", the prefix ends after a whole line or row, if these fill at least
/// half of it.
#[pyfunction]
#[pyo3(signature = (data, max_bytes = 2048, *, max_escaped_bytes = None, escape_levels = 1, whole = None))]
pub fn preview<'py>(
    py: Python<'py>,
    data: Payload,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
    #[pyo3(from_py_with = optional_int::max_escaped_bytes)] max_escaped_bytes: Option<i64>,
    #[pyo3(from_py_with = int::escape_levels)] escape_levels: i64,
    #[pyo3(from_py_with = optional_text::whole)] whole: Option<&str>,
) -> PyResult<Option<Bound<'py, PyString>>> {
    let find = |data: &[u8]| {
        let max_escaped = max_escaped_bytes.map(|max| to_u64("max_escaped_bytes", max)).transpose()?;
        let escaping = Escaping::from_levels(to_u64("escape_levels", escape_levels)?)?;
        let max_bytes = to_u64("max_bytes", max_bytes)?;
        let delimiter = match whole {
            None => return forebay_core::preview(data, max_bytes, max_escaped, escaping),
            Some("lines") => None,
            Some("csv") => Some(b','),
            Some("tsv") => Some(b'\t'),
            Some(other) => {
                let why = format!("whole must be \"lines\", \"csv\" or \"tsv\", not {other:.32?}");
                return Err(Error { kind: ErrorKind::InvalidArgument(why), index: 0 });
            }
        };
        forebay_core::preview_lines(data, max_bytes, max_escaped, escaping, delimiter)
    };
    let end = data.detach(py, find).map_err(CoreError::from)?;
    end.map(|end| PyString::from_bytes(py, &data.as_slice(py)[..end])).transpose()
}

/// Return a preview of a document with items, as many whole items from the first on as fit, and their number.
///
/// The items are those of the array or object at byte `items_start`, or the lines of NDJSON if that is `None`.
/// An item that alone does not fit is truncated. The values beside the items stay, as far as they take half of
/// the budget. The preview is valid JSON, or empty if nothing fits; for the budgets see `preview`.
///
/// With `or_all`, a document that fits is its own preview, as it is; then the number is `None`.
#[pyfunction]
#[pyo3(signature = (
    data, items_start, max_bytes = 2048, *, max_escaped_bytes = None, escape_levels = 1, or_all = false,
))]
pub fn preview_items<'py>(
    py: Python<'py>,
    data: Payload,
    #[pyo3(from_py_with = optional_int::items_start)] items_start: Option<i64>,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
    #[pyo3(from_py_with = optional_int::max_escaped_bytes)] max_escaped_bytes: Option<i64>,
    #[pyo3(from_py_with = int::escape_levels)] escape_levels: i64,
    or_all: bool,
) -> PyResult<(Bound<'py, PyString>, Option<u64>)> {
    let show = |data: &[u8]| {
        let items_start = items_start.map(|start| to_u64("items_start", start)).transpose()?;
        let max_escaped = max_escaped_bytes.map(|max| to_u64("max_escaped_bytes", max)).transpose()?;
        let escaping = Escaping::from_levels(to_u64("escape_levels", escape_levels)?)?;
        let max_bytes = to_u64("max_bytes", max_bytes)?;
        if or_all && forebay_core::preview(data, max_bytes, max_escaped, escaping)? == Some(data.len()) {
            return Ok(None);
        }
        forebay_core::preview_items(data, items_start, max_bytes, max_escaped, escaping).map(Some)
    };
    Ok(match data.detach(py, show).map_err(CoreError::from)? {
        None => (PyString::from_bytes(py, data.as_slice(py))?, None),
        Some((text, count)) => (PyString::new(py, &text), Some(count)),
    })
}
