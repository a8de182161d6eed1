//! `read_items`: pages of items.

use headgate_core::items;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::convert::{count, int, optional_int, page, repr, size};
use crate::error::CoreError;
use crate::index::ItemIndex;
use crate::page::Cut;
use crate::payload::Payload;

#[pyclass(frozen, get_all, module = "headgate._core")]
pub struct ItemPage {
    content: Py<PyBytes>,
    offset: u64,
    returned: u64,
    total: u64,
    next_offset: Option<u64>,
    start: u64,
    end: u64,
    truncated: Py<PyList>,
}

#[pymethods]
impl ItemPage {
    fn __repr__(&self) -> String {
        let Self { offset, returned, total, next_offset, .. } = self;
        let next_offset = repr(next_offset.as_ref());
        format!("ItemPage(offset={offset}, returned={returned}, total={total}, next_offset={next_offset})")
    }
}

#[pyfunction]
#[pyo3(signature = (data, index, offset = 0, limit = 200, max_bytes = 65536, *, last = None, base = 0))]
#[allow(clippy::too_many_arguments)]
pub fn read_items(
    py: Python<'_>,
    data: Payload,
    index: &ItemIndex,
    #[pyo3(from_py_with = int)] offset: i64,
    #[pyo3(from_py_with = int)] limit: i64,
    #[pyo3(from_py_with = int)] max_bytes: i64,
    #[pyo3(from_py_with = optional_int)] last: Option<i64>,
    #[pyo3(from_py_with = int)] base: i64,
) -> PyResult<ItemPage> {
    let index = &index.0;
    let read = |data: &[u8]| {
        let (base, range) = (count("base", base)?, page(offset, limit, last)?);
        items::read_items(data, base, index, range, size("max_bytes", max_bytes)?)
    };
    let page = data.detached(py, read).map_err(CoreError::from)?;
    Ok(ItemPage {
        content: PyBytes::new(py, &page.content).unbind(),
        offset: page.offset,
        returned: page.returned,
        total: page.total,
        next_offset: page.next_offset,
        start: page.start,
        end: page.end,
        truncated: PyList::new(py, page.truncated.map(Cut::from))?.unbind(),
    })
}
