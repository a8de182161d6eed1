use forebay_core::{Escaping, Range};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::convert::{int, optional_int, repr, to_u64};
use crate::error::CoreError;
use crate::payload::Payload;

/// A page of whole characters within a byte budget.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct TextPage {
    /// The text `data[start:end]`.
    text: Py<PyString>,
    /// Offset of the text. A requested offset inside a character moves back to the character's first byte.
    start: usize,
    /// Offset of the byte after the text.
    end: usize,
    /// The same as `end`, or `None` at the end of the payload.
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

/// Return the size of a text after it was JSON-escaped `escape_levels` times, without the quotes around it.
#[pyfunction]
pub fn escaped_size(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = int::escape_levels)] escape_levels: i64,
) -> PyResult<usize> {
    let levels = to_u64("escape_levels", escape_levels).map_err(CoreError::from)?;
    let escaping = Escaping::from_levels(levels).map_err(CoreError::from)?;
    Ok(data.detach(py, |data| escaping.escaped_len(data)))
}

/// Return text from byte `offset` on that takes at most `max_bytes` once escaped.
///
/// `escape_levels` is how many times it will be JSON-escaped. `last=n` reads from the n-th byte before the
/// end instead. No character is cut. Raise `InvalidText` if the text is not UTF-8.
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
            Some(last) => Range::Suffix(to_u64("last", last)?),
            None => Range::From(to_u64("offset", offset)?),
        };
        let escaping = Escaping::from_levels(to_u64("escape_levels", escape_levels)?)?;
        forebay_core::read_text(data, range, to_u64("max_bytes", max_bytes)?, escaping)
    };
    let page = data.detach(py, read).map_err(CoreError::from)?;
    let text = PyString::from_bytes(py, &data.as_slice(py)[page.span.clone()])?.unbind();
    Ok(TextPage { text, start: page.span.start, end: page.span.end, next_offset: page.next_offset })
}
