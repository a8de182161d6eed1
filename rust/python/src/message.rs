//! Messages taken apart, in memory or in a file.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use forebay_core::Result;
use forebay_core::message::{self, Limits, Source, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::error::CoreError;
use crate::payload::Payload;

/// A buffer, or the path of a file.
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

/// A value of a message: the message, and where in it.
#[derive(FromPyObject)]
pub struct Part(Message, u64, u64);

impl Part {
    fn span(&self) -> Range<u64> {
        self.1..self.2.max(self.1)
    }

    /// Runs `verb` with the interpreter released.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        verb: impl Send + FnOnce(&Value<'_>) -> Result<T>,
    ) -> Result<T> {
        let source = self.0.source(py)?;
        py.detach(|| verb(&Value { source: &source, span: self.span() }))
    }

    fn compared(
        &self,
        py: Python<'_>,
        other: &Self,
        verb: Comparison,
    ) -> std::result::Result<bool, CoreError> {
        let (one, two) = (self.0.source(py)?, other.0.source(py)?);
        Ok(py.detach(|| {
            verb(&Value { source: &one, span: self.span() }, &Value { source: &two, span: other.span() })
        })?)
    }
}

type Comparison = fn(&Value<'_>, &Value<'_>) -> Result<bool>;

type Spans = Vec<(u64, u64)>;

/// Takes a message apart: its skeleton, in which hole `n` is the string `token:n`, and where its holes are.
///
/// A hole is a string or a container that is larger than may be, a number that is not the same once it was read and
/// written again, and a string that is no text. `token` is what nobody who writes messages can know.
#[pyfunction]
#[pyo3(signature = (part, token, *, most_string = 1024, most_container = 8192, most_depth = 64))]
pub fn dissect<'py>(
    py: Python<'py>,
    part: Part,
    token: &str,
    most_string: usize,
    most_container: usize,
    most_depth: usize,
) -> PyResult<(Bound<'py, PyBytes>, Spans)> {
    let limits = Limits { most_string, most_container, most_depth };
    let take_apart =
        |value: &Value<'_>| message::dissect(value.source.reader(value.span.clone())?, token, limits);
    let found = part.detached(py, take_apart).map_err(CoreError::from)?;
    let holes = found.holes.iter().map(|hole| (part.1 + hole.start, part.1 + hole.end)).collect();
    Ok((PyBytes::new(py, &found.skeleton), holes))
}

/// What the content of a JSON string, without its quotes, stands for.
///
/// Half of a surrogate pair is kept as three bytes; what is no escape that JSON knows stays as it is.
#[pyfunction]
pub fn unescape<'py>(py: Python<'py>, content: Payload) -> Bound<'py, PyBytes> {
    let text = content.detached(py, message::unescape);
    PyBytes::new(py, &text)
}

/// `unescape` for content that comes in pieces, cut anywhere.
#[pyclass(frozen, module = "forebay._core")]
pub struct Unescaper(Mutex<message::Unescaper>);

#[pymethods]
impl Unescaper {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(message::Unescaper::default()))
    }

    /// What is known by the next piece.
    fn push<'py>(&self, py: Python<'py>, piece: Payload) -> Bound<'py, PyBytes> {
        let text = piece.detached(py, |piece| {
            let mut text = Vec::new();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(piece, &mut text);
            text
        });
        PyBytes::new(py, &text)
    }

    /// What is left: an escape that was cut short.
    fn finish<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut text = Vec::new();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish(&mut text);
        PyBytes::new(py, &text)
    }
}

/// Whether two values are strings that stand for the same text.
#[pyfunction]
pub fn same_text(py: Python<'_>, one: Part, other: Part) -> std::result::Result<bool, CoreError> {
    one.compared(py, &other, message::same_text)
}

/// Whether what the string `text` stands for is JSON, and the value to the letter.
///
/// But for white space between tokens, and for which characters in strings are escaped.
#[pyfunction]
pub fn same_json(py: Python<'_>, text: Part, value: Part) -> std::result::Result<bool, CoreError> {
    text.compared(py, &value, message::same_json)
}

/// Whether each text of `content` is its item of `items`, or the JSON of it.
///
/// `content` is an array of `{"type": "text", "text": ...}`, with nothing else in them.
#[pyfunction]
pub fn each_says(py: Python<'_>, content: Part, items: Part) -> std::result::Result<bool, CoreError> {
    content.compared(py, &items, message::each_says)
}

/// Where the value of an object's only member is, if that is called `name`.
#[pyfunction]
pub fn only_member(
    py: Python<'_>,
    part: Part,
    name: &str,
) -> std::result::Result<Option<(u64, u64)>, CoreError> {
    let found = part.detached(py, |object| message::only_member(object, name))?;
    Ok(found.map(|span| (span.start, span.end)))
}

/// Where the values of an object's members of these names are, in the order of the names.
///
/// Of several with one name the last; what is no object has none.
#[pyfunction]
pub fn members(
    py: Python<'_>,
    part: Part,
    names: Vec<String>,
) -> std::result::Result<Vec<Option<(u64, u64)>>, CoreError> {
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let found = part.detached(py, |object| message::members(object, &names))?;
    Ok(found.into_iter().map(|span| span.map(|span| (span.start, span.end))).collect())
}
