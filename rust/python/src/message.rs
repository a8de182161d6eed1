//! Messages in memory or in a file.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use forebay_core::Result;
use forebay_core::message::{self, Limits, Source, Value};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyString};

use crate::error::CoreError;
use crate::payload::Payload;

/// Values up to this size are read without releasing the interpreter: getting it back, while other threads
/// want it, takes longer than reading them.
const MAX_ATTACHED_BYTES: u64 = 16 * 1024;

/// A message: a buffer, or the path of a file.
pub enum Message {
    Buffer(Payload),
    File(String),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Message {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyString>() {
            Ok(path) => Ok(Self::File(path.to_str()?.to_owned())),
            Err(_) => Payload::extract(object).map(Self::Buffer),
        }
    }
}

impl Message {
    fn source<'a>(&'a self, py: Python<'a>) -> Result<Source<'a>> {
        match self {
            Self::Buffer(payload) => Ok(Source::Memory(payload.as_slice(py))),
            Self::File(path) => Source::open(Path::new(path)),
        }
    }
}

/// A value of a message: the message, and where the value starts and ends in it.
#[derive(FromPyObject)]
pub struct Part(Message, u64, u64);

impl Part {
    fn span(&self) -> Range<u64> {
        self.1..self.2.max(self.1)
    }

    /// Runs `operation` with the interpreter released, unless the value is small and in memory.
    fn detach<T: Send>(
        &self,
        py: Python<'_>,
        operation: impl Send + FnOnce(&Value<'_>) -> Result<T>,
    ) -> Result<T> {
        let source = self.0.source(py)?;
        let value = Value { source: &source, span: self.span() };
        let is_small =
            matches!(source, Source::Memory(_)) && self.2.saturating_sub(self.1) <= MAX_ATTACHED_BYTES;
        if is_small { operation(&value) } else { py.detach(|| operation(&value)) }
    }

    fn compare(
        &self,
        py: Python<'_>,
        other: &Self,
        operation: Comparison,
    ) -> std::result::Result<bool, CoreError> {
        let (left, right) = (self.0.source(py)?, other.0.source(py)?);
        Ok(py.detach(|| {
            operation(
                &Value { source: &left, span: self.span() },
                &Value { source: &right, span: other.span() },
            )
        })?)
    }
}

type Comparison = fn(&Value<'_>, &Value<'_>) -> Result<bool>;

type Spans = Vec<(u64, u64)>;

/// Split a message into a skeleton, in which hole `n` is the string `token:n`, and the spans of its holes.
///
/// A hole is a value that is left unparsed: a string or container that is too large, a number that would
/// change if it were parsed and written again, or a string that is not valid text. `token` must be random, so
/// that the message cannot contain it.
#[pyfunction]
#[pyo3(signature = (part, token, *, max_string_bytes = 1024, max_container_bytes = 8192, max_depth = 64))]
pub fn dissect<'py>(
    py: Python<'py>,
    part: Part,
    token: &str,
    max_string_bytes: usize,
    max_container_bytes: usize,
    max_depth: usize,
) -> PyResult<(Bound<'py, PyBytes>, Spans)> {
    let limits = Limits { max_string_bytes, max_container_bytes, max_depth };
    let dissect =
        |value: &Value<'_>| message::dissect(value.source.reader(value.span.clone())?, token, limits);
    let dissection = part.detach(py, dissect).map_err(CoreError::from)?;
    let holes = dissection.holes.iter().map(|hole| (part.1 + hole.start, part.1 + hole.end)).collect();
    Ok((PyBytes::new(py, &dissection.skeleton), holes))
}

/// Decode the content of a JSON string, given without its quotes.
///
/// A lone surrogate becomes three bytes, as in WTF-8; unknown escapes are copied unchanged.
#[pyfunction]
pub fn unescape<'py>(py: Python<'py>, content: Payload) -> PyResult<Bound<'py, PyBytes>> {
    // Where counting is fast, it is cheaper than to copy a result of unknown length, and takes half of the memory.
    let Some(len) = content.detach(py, message::unescaped_len) else {
        return Ok(PyBytes::new(py, &content.detach(py, message::unescape)));
    };
    PyBytes::new_with(py, len, |out| {
        if content.detach(py, |content| message::unescape_into(content, out)) {
            Ok(())
        } else {
            Err(PyBufferError::new_err("the payload has changed while it was read"))
        }
    })
}

/// Decoder like `unescape`, for content that arrives in pieces. It may be cut anywhere.
#[pyclass(frozen, module = "forebay._core")]
pub struct Unescaper(Mutex<message::Unescaper>);

#[pymethods]
impl Unescaper {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(message::Unescaper::default()))
    }

    /// Decode the next piece, except for an incomplete escape at its end.
    fn push<'py>(&self, py: Python<'py>, piece: Payload) -> Bound<'py, PyBytes> {
        let text = piece.detach(py, |piece| {
            let mut text = Vec::new();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(piece, &mut text);
            text
        });
        PyBytes::new(py, &text)
    }

    /// Return the incomplete escape at the end of the content, or `b""` if there is none.
    fn finish<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut text = Vec::new();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish(&mut text);
        PyBytes::new(py, &text)
    }
}

/// Return whether two values are strings with the same decoded text.
#[pyfunction]
pub fn same_text(py: Python<'_>, one: Part, other: Part) -> std::result::Result<bool, CoreError> {
    one.compare(py, &other, message::same_text)
}

/// Return whether the decoded string `text` is JSON that equals `value` token by token.
///
/// White space between tokens and the escaping of characters in strings do not matter.
#[pyfunction]
pub fn same_json(py: Python<'_>, text: Part, value: Part) -> std::result::Result<bool, CoreError> {
    text.compare(py, &value, message::same_json)
}

/// Return whether each text of `content` equals the item at the same position of `items`, or is that item as
/// JSON.
///
/// `content` must be an array of `{"type": "text", "text": ...}` without other members, and `items` an array
/// of the same length.
#[pyfunction]
pub fn texts_match_items(py: Python<'_>, content: Part, items: Part) -> std::result::Result<bool, CoreError> {
    content.compare(py, &items, message::texts_match_items)
}

/// Return the span of the value of an object's only member, if its key is `name`.
#[pyfunction]
pub fn only_member(
    py: Python<'_>,
    part: Part,
    name: &str,
) -> std::result::Result<Option<(u64, u64)>, CoreError> {
    let span = part.detach(py, |object| message::only_member(object, name))?;
    Ok(span.map(|span| (span.start, span.end)))
}

/// Return the spans of the values of the named members, in the order of `names`.
///
/// If a key is repeated, the last one counts. A value that is not an object has no members.
#[pyfunction]
pub fn members(
    py: Python<'_>,
    part: Part,
    names: Vec<String>,
) -> std::result::Result<Vec<Option<(u64, u64)>>, CoreError> {
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let spans = part.detach(py, |object| message::members(object, &names))?;
    Ok(spans.into_iter().map(|span| span.map(|span| (span.start, span.end))).collect())
}

/// Return the index of the path and the span of each value at these paths of names, in order.
///
/// If a key is repeated, all of its values count. Inside of a value at a path no others are searched for.
#[pyfunction]
pub fn values_at(
    py: Python<'_>,
    part: Part,
    paths: Vec<Vec<PyBackedStr>>,
) -> std::result::Result<Vec<(usize, u64, u64)>, CoreError> {
    let paths: Vec<Vec<&str>> = paths.iter().map(|path| path.iter().map(|name| &**name).collect()).collect();
    let found = part.detach(py, |object| message::values_at(object, &paths))?;
    Ok(found.into_iter().map(|(index, span)| (index, span.start, span.end)).collect())
}

/// Return the spans of the items of an array; a value that is not an array has none.
///
/// Raise `InvalidArgument` for more than `limit` items.
#[pyfunction]
pub fn items(py: Python<'_>, part: Part, limit: usize) -> std::result::Result<Spans, CoreError> {
    let spans = part.detach(py, |array| message::items(array, limit))?;
    Ok(spans.into_iter().map(|span| (span.start, span.end)).collect())
}
