//! A payload as Python hands it over: borrowed, never copied.

use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyString};

/// Keeps the object alive, and so its bytes, for as long as the call takes.
pub enum Payload {
    Bytes(Py<PyBytes>),
    Text(PyBackedStr),
    Buffer(PyBuffer<u8>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Payload {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.to_owned().unbind()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Self::Text(PyBackedStr::try_from(text.to_owned())?));
        }
        let buffer = PyUntypedBuffer::get(&object).map_err(|error| why_not(error, object.py()))?;
        let buffer = buffer.into_typed::<u8>().map_err(|_| {
            PyBufferError::new_err("a payload's buffer must be of bytes; pass memoryview(…).cast(\"B\")")
        })?;
        if !buffer.readonly() {
            return Err(PyTypeError::new_err(
                "a payload's buffer must be read-only; pass bytes(…) or memoryview(…).toreadonly()",
            ));
        }
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("a payload's buffer must be contiguous"));
        }
        Ok(Self::Buffer(buffer))
    }
}

/// A buffer that was closed or released says so itself; only what has none at all is told what a payload is.
fn why_not(error: PyErr, py: Python<'_>) -> PyErr {
    if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(
            "a payload is bytes, a read-only buffer of bytes or a str; encode other objects first",
        )
    } else {
        error
    }
}

impl Payload {
    #[allow(unsafe_code)]
    pub fn as_slice<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(py),
            Self::Text(text) => text.as_bytes(),
            // An empty buffer may have no address at all.
            Self::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: the buffer is contiguous and held until `self` is dropped. It is read-only, but its
            // owner may still write to it; the core checks bounds on every use and trusts no earlier look.
            Self::Buffer(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
            },
        }
    }

    /// Runs `verb` on the bytes with the interpreter released.
    pub fn detached<T: Send>(&self, py: Python<'_>, verb: impl Send + FnOnce(&[u8]) -> T) -> T {
        let data = self.as_slice(py);
        py.detach(|| verb(data))
    }
}
