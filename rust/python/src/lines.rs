use forebay_core::Escaping;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::convert::{int, optional_int, page_range, repr, to_u64};
use crate::error::CoreError;
use crate::index::ItemIndex;
use crate::page::Cut;
use crate::payload::Payload;

/// A page of whole lines within a byte budget.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct LinePage {
    /// The lines, line ends included.
    text: Py<PyString>,
    /// Number of the first line returned.
    offset: u64,
    /// How many lines are returned.
    returned: u64,
    /// Number of lines in the payload; `None` without an index, unless the page is the last one.
    total: Option<u64>,
    /// Number of the line after the last one returned; `None` at the end.
    next_offset: Option<u64>,
    /// Offset of the first line.
    start: usize,
    /// Offset of the byte after the text.
    end: usize,
    /// The line that alone exceeded the budget, if there is one.
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

/// Return whole lines from number `offset` on, at most `limit`, that take at most `max_bytes` once escaped.
///
/// `escape_levels` is how many times the lines will be JSON-escaped. `last=n` starts at the n-th line from
/// the end instead. With an index (`index_lines`) the cost does not depend on `offset`. A line that alone
/// exceeds the budget is cut, returned alone, and listed in `truncated`.
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
        let range = page_range(offset, limit, last)?;
        let escaping = Escaping::from_levels(to_u64("escape_levels", escape_levels)?)?;
        forebay_core::read_lines(data, index, range, to_u64("max_bytes", max_bytes)?, escaping)
    };
    let page = data.detach(py, read).map_err(CoreError::from)?;
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
