use forebay_core::Escaping;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::convert::{count, int, optional_int, page, repr};
use crate::error::CoreError;
use crate::index::ItemIndex;
use crate::page::Cut;
use crate::payload::Payload;

/// Whole lines within a budget.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct LinePage {
    /// The lines as they stand in the payload, line ends included.
    text: Py<PyString>,
    /// The number of the first line shown.
    offset: u64,
    /// How many lines are shown.
    returned: u64,
    /// How many lines there are, where an index knows or the page is the last one.
    total: Option<u64>,
    /// The line after the last one shown; `None` exactly at the end.
    next_offset: Option<u64>,
    /// The first byte of the first line shown.
    start: usize,
    /// The byte after what is shown.
    end: usize,
    /// The line that alone exceeded the budget, if one did.
    truncated: Py<PyList>,
}

#[pymethods]
impl LinePage {
    fn __repr__(&self) -> String {
        let Self { offset, returned, next_offset, .. } = self;
        let next_offset = repr(next_offset.as_ref());
        format!("LinePage(offset={offset}, returned={returned}, next_offset={next_offset})")
    }
}

/// Whole lines from number `offset` on, at most `limit`, within `max_bytes` once JSON-escaped `escape_levels` times.
///
/// `last=n` starts at the n-th line from the end instead. With an index (`index_lines`) the time does not depend on
/// `offset`. A line that alone exceeds the budget comes back cut, by itself, and is named in `truncated`.
#[pyfunction]
#[pyo3(signature = (data, offset = 0, limit = 200, max_bytes = 65536, *, last = None, index = None, escape_levels = 0))]
#[allow(clippy::too_many_arguments)]
pub fn read_lines(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = int::offset)] offset: i64,
    #[pyo3(from_py_with = int::limit)] limit: i64,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
    #[pyo3(from_py_with = optional_int::last)] last: Option<i64>,
    index: Option<&ItemIndex>,
    #[pyo3(from_py_with = int::escape_levels)] escape_levels: i64,
) -> PyResult<LinePage> {
    let index = index.map(|index| &index.0);
    let read = |data: &[u8]| {
        let range = page(offset, limit, last)?;
        let escaping = Escaping::from_levels(count("escape_levels", escape_levels)?)?;
        forebay_core::read_lines(data, index, range, count("max_bytes", max_bytes)?, escaping)
    };
    let page = data.detached(py, read).map_err(CoreError::from)?;
    Ok(LinePage {
        text: PyString::from_bytes(py, &data.as_slice(py)[page.span.clone()])?.unbind(),
        offset: page.offset,
        returned: page.returned,
        total: page.total,
        next_offset: page.next_offset,
        start: page.span.start,
        end: page.span.end,
        truncated: PyList::new(py, page.truncated.map(Cut::from))?.unbind(),
    })
}
