use forebay_core::{Escaping, Range};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::convert::{count, int, optional_int, repr};
use crate::error::CoreError;
use crate::payload::Payload;

/// Whole characters within a budget.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct TextPage {
    /// `data[start:end]`.
    text: Py<PyString>,
    /// Where the text really starts: an offset inside a character moves back to its first byte.
    start: usize,
    /// The byte after the text.
    end: usize,
    /// `end`, or `None` exactly at the end of the payload.
    next_offset: Option<u64>,
}

#[pymethods]
impl TextPage {
    fn __repr__(&self) -> String {
        let Self { start, end, next_offset, .. } = self;
        let next_offset = repr(next_offset.as_ref());
        format!("TextPage(start={start}, end={end}, next_offset={next_offset})")
    }
}

/// Text from byte `offset` on that is at most `max_bytes` once it was JSON-escaped `escape_levels` times.
///
/// `last=n` reads from the n-th byte before the end instead. Never cut inside a character. Raises `InvalidText` where
/// what would be returned is not UTF-8.
#[pyfunction]
#[pyo3(signature = (data, offset = 0, max_bytes = 65536, *, last = None, escape_levels = 0))]
pub fn read_text(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = int::offset)] offset: i64,
    #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
    #[pyo3(from_py_with = optional_int::last)] last: Option<i64>,
    #[pyo3(from_py_with = int::escape_levels)] escape_levels: i64,
) -> PyResult<TextPage> {
    let read = |data: &[u8]| {
        let range = match last {
            Some(last) => Range::Suffix(count("last", last)?),
            None => Range::From(count("offset", offset)?),
        };
        let escaping = Escaping::from_levels(count("escape_levels", escape_levels)?)?;
        forebay_core::read_text(data, range, count("max_bytes", max_bytes)?, escaping)
    };
    let page = data.detached(py, read).map_err(CoreError::from)?;
    let text = PyString::from_bytes(py, &data.as_slice(py)[page.span.clone()])?.unbind();
    Ok(TextPage { text, start: page.span.start, end: page.span.end, next_offset: page.next_offset })
}
