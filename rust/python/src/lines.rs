use headgate_core::Escaping;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::convert::{count, int, optional_int, page, repr};
use crate::error::CoreError;
use crate::index::ItemIndex;
use crate::page::Cut;
use crate::payload::Payload;

#[pyclass(frozen, get_all, module = "headgate._core")]
pub struct LinePage {
    text: Py<PyString>,
    offset: u64,
    returned: u64,
    total: Option<u64>,
    next_offset: Option<u64>,
    start: usize,
    end: usize,
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

#[pyfunction]
#[pyo3(signature = (data, offset = 0, limit = 200, max_bytes = 65536, *, last = None, index = None, escape_levels = 0))]
#[allow(clippy::too_many_arguments)]
pub fn read_lines(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = int)] offset: i64,
    #[pyo3(from_py_with = int)] limit: i64,
    #[pyo3(from_py_with = int)] max_bytes: i64,
    #[pyo3(from_py_with = optional_int)] last: Option<i64>,
    index: Option<&ItemIndex>,
    #[pyo3(from_py_with = int)] escape_levels: i64,
) -> PyResult<LinePage> {
    let index = index.map(|index| &index.0);
    let read = |data: &[u8]| {
        let range = page(offset, limit, last)?;
        let escaping = Escaping::from_levels(count("escape_levels", escape_levels)?)?;
        headgate_core::read_lines(data, index, range, count("max_bytes", max_bytes)?, escaping)
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
