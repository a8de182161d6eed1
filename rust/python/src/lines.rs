use headgate_core::{Escaping, Range};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::convert::count;
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
        let next_offset = next_offset.map_or_else(|| "None".to_owned(), |next| next.to_string());
        format!("LinePage(offset={offset}, returned={returned}, next_offset={next_offset})")
    }
}

#[pyfunction]
#[pyo3(signature = (data, offset = 0, limit = 200, max_bytes = 65536, *, last = None, index = None, escape_levels = 0))]
#[allow(clippy::too_many_arguments)]
pub fn read_lines(
    py: Python<'_>,
    data: Payload,
    offset: i64,
    limit: i64,
    max_bytes: i64,
    last: Option<i64>,
    index: Option<&ItemIndex>,
    escape_levels: i64,
) -> PyResult<LinePage> {
    let index = index.map(|index| &index.0);
    let read = |data: &[u8]| {
        let range = match last {
            Some(last) => Range::Suffix(count("last", last)?),
            None => Range::Bounded { offset: count("offset", offset)?, limit: count("limit", limit)? },
        };
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
