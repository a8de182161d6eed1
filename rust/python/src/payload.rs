//! Payload arguments: borrowed from Python, never copied.

use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyString};

/// A payload. Keeps the object, and so its bytes, alive during a call.
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
        let buffer = PyUntypedBuffer::get(&object).map_err(|error| payload_error(error, object.py()))?;
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

/// Explains what a payload is, if the object has no buffer at all. Other errors, such as a closed buffer,
/// stay as they are.
fn payload_error(error: PyErr, py: Python<'_>) -> PyErr {
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
            // An empty buffer may have no address.
            Self::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: the buffer is contiguous and held until `self` is dropped. It is read-only, but its
            // owner may still write to it; the core checks bounds on every use and does not rely on what it
            // read before.
            Self::Buffer(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
            },
        }
    }

    /// Runs `operation` on the bytes with the interpreter released.
    pub fn detach<T: Send>(&self, py: Python<'_>, operation: impl Send + FnOnce(&[u8]) -> T) -> T {
        let data = self.as_slice(py);
        py.detach(|| operation(data))
    }
}
