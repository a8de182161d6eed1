use forebay_core::redact as core;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::{optional_text, to_row_kind};
use crate::error::CoreError;
use crate::payload::Payload;

/// Regular expressions whose matches are replaced by `[redacted]`.
///
/// The syntax is that of `search`. Raise `InvalidPattern` for an expression that does not compile.
#[pyclass(frozen, module = "forebay._core")]
pub struct Redactor(core::Redactor);

#[pymethods]
impl Redactor {
    #[new]
    fn new(patterns: Vec<String>) -> Result<Self, CoreError> {
        Ok(Self(core::Redactor::new(&patterns)?))
    }

    /// Return a payload without its secrets, or `None` if it has none.
    ///
    /// The expressions see each text of the payload: all of it, or in JSON each string and number, with its
    /// escapes decoded. A text that is itself JSON, or base64 of text, is searched by its own texts. What was
    /// JSON stays JSON. With `rows` ("csv" or "tsv") they see the cells of a payload, header included, as texts
    /// instead, and each row as a JSON object; its rows and columns stay.
    #[pyo3(signature = (data, rows = None))]
    fn redact<'py>(
        &self,
        py: Python<'py>,
        data: Payload,
        #[pyo3(from_py_with = optional_text::rows)] rows: Option<&str>,
    ) -> Result<Option<Bound<'py, PyBytes>>, CoreError> {
        let kind = rows.map(to_row_kind).transpose()?;
        let redacted = data.detach(py, |data| match kind {
            None => self.0.redact(data),
            Some(kind) => self.0.redact_cells(data, kind),
        });
        Ok(redacted.map(|redacted| PyBytes::new(py, &redacted)))
    }
}

/// Return a payload with each of its texts replaced by what `function` returns for it, or `None` if all stay.
///
/// The texts are those that `Redactor.redact` searches, as bytes. An exception of `function` is raised again.
#[pyfunction]
#[pyo3(signature = (data, function, rows = None))]
pub fn replace_texts<'py>(
    py: Python<'py>,
    data: Payload,
    function: Bound<'py, PyAny>,
    #[pyo3(from_py_with = optional_text::rows)] rows: Option<&str>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let kind = rows.map(to_row_kind).transpose().map_err(CoreError::from)?;
    let (data, mut filter) = (data.as_slice(py), Function(function));
    let redacted = match kind {
        None => core::redact(data, &mut filter)?,
        Some(kind) => core::redact_cells(data, kind, &mut filter)?,
    };
    Ok(redacted.map(|redacted| PyBytes::new(py, &redacted)))
}

struct Function<'py>(Bound<'py, PyAny>);

impl core::Filter for Function<'_> {
    type Error = PyErr;

    fn filter(&mut self, text: &[u8]) -> PyResult<Option<Vec<u8>>> {
        let returned = self.0.call1((PyBytes::new(self.0.py(), text),))?;
        let replacement = returned.cast::<PyBytes>().map_err(|_| {
            let kind = returned.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
            PyTypeError::new_err(format!("a function that replaces texts returns bytes, not {kind}"))
        })?;
        Ok((replacement.as_bytes() != text).then(|| replacement.as_bytes().to_vec()))
    }
}
