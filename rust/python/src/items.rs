//! `read_items`: pages of items.

use forebay_core::items;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::convert::{int, optional_int, page_range, repr, to_u64, to_usize};
use crate::error::CoreError;
use crate::index::ItemIndex;
use crate::page::Cut;
use crate::payload::Payload;

/// A page of whole items within a byte budget.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct ItemPage {
    /// A JSON array of the items, each copied verbatim. A row of CSV or TSV is an object of strings, an entry of a
    /// map an object with the key as `_key`.
    content: Py<PyBytes>,
    /// Number of the first item returned.
    offset: u64,
    /// How many items are returned.
    returned: u64,
    /// How many items the payload has.
    total: u64,
    /// Number of the item after the last one returned; `None` at the end.
    next_offset: Option<u64>,
    /// Offset of the first item.
    start: u64,
    /// Offset of the byte after the last item.
    end: u64,
    /// The item that alone exceeded the budget, if there is one.
    truncated: Py<PyList>,
    /// Key of the truncated item, if it is an entry of a map and its key is text (has no lone surrogate).
    truncated_key: Option<String>,
}

#[pymethods]
impl ItemPage {
    fn __repr__(&self) -> String {
        let Self { offset, returned, total, next_offset, .. } = self;
        let next_offset = repr(next_offset.as_ref());
        format!("ItemPage(offset={offset}, returned={returned}, total={total}, next_offset={next_offset})")
    }
}

/// Return whole items from number `offset` on, at most `limit`, as a JSON array of at most `max_bytes`.
///
/// `last=n` starts at the n-th item from the end instead. An item that alone exceeds the budget is truncated,
/// returned alone, and listed in `truncated`. The index must belong to this payload.
#[pyfunction]
#[pyo3(signature = (data, index, offset = 0, limit = 200, max_bytes = 65536, *, last = None, base = 0))]
#[allow(clippy::too_many_arguments)]
pub fn read_items(
    py: Python<'_>,
    data: Payload,
    index: &ItemIndex,
    #[pyo3(from_py_with = int::offset)] offset: i64,
    #[pyo3(from_py_with = int::limit)] limit: i64,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
    #[pyo3(from_py_with = optional_int::last)] last: Option<i64>,
    #[pyo3(from_py_with = int::base)] base: i64,
) -> PyResult<ItemPage> {
    let index = &index.0;
    let read = |data: &[u8]| {
        let (base, range) = (to_u64("base", base)?, page_range(offset, limit, last)?);
        items::read_items(data, base, index, range, to_usize("max_bytes", max_bytes)?)
    };
    let page = data.detach(py, read).map_err(CoreError::from)?;
    Ok(ItemPage {
        content: PyBytes::new(py, &page.content).unbind(),
        offset: page.offset,
        returned: page.returned,
        total: page.total,
        next_offset: page.next_offset,
        start: page.start,
        end: page.end,
        truncated: PyList::new(py, page.truncated.map(Cut::from))?.unbind(),
        truncated_key: page.truncated_key,
    })
}
