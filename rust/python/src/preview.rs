use forebay_core::Escaping;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::convert::{int, optional_int, to_u64};
use crate::error::CoreError;
use crate::payload::Payload;

/// Return the longest whole prefix of at most `max_bytes`; `None` for binary data.
///
/// "Whole" means not cut inside a character or a JSON escape, nor inside a grapheme cluster, unless that
/// would make the prefix more than 64 bytes shorter. `max_escaped_bytes` also limits the size of the prefix
/// after JSON-escaping it `escape_levels` times (1 or 2).
#[pyfunction]
#[pyo3(signature = (data, max_bytes = 2048, *, max_escaped_bytes = None, escape_levels = 1))]
pub fn preview<'py>(
    py: Python<'py>,
    data: Payload,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
    #[pyo3(from_py_with = optional_int::max_escaped_bytes)] max_escaped_bytes: Option<i64>,
    #[pyo3(from_py_with = int::escape_levels)] escape_levels: i64,
) -> PyResult<Option<Bound<'py, PyString>>> {
    let find = |data: &[u8]| {
        let max_escaped = max_escaped_bytes.map(|max| to_u64("max_escaped_bytes", max)).transpose()?;
        let escaping = Escaping::from_levels(to_u64("escape_levels", escape_levels)?)?;
        forebay_core::preview(data, to_u64("max_bytes", max_bytes)?, max_escaped, escaping)
    };
    let end = data.detach(py, find).map_err(CoreError::from)?;
    end.map(|end| PyString::from_bytes(py, &data.as_slice(py)[..end])).transpose()
}
