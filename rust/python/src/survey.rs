//! `Survey` and its result; `checksum`.

use std::sync::{Mutex, PoisonError};

use forebay_core::{Error, ErrorKind, Nature, survey};
use pyo3::prelude::*;

use crate::convert::{optional_text, to_row_kind};
use crate::error::CoreError;
use crate::index::ItemIndex;
use crate::payload::Payload;

/// Result of a `Survey`: the type of a payload, and its indexes.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct Findings {
    /// Type of the payload: "json", "ndjson", "text" or "binary".
    nature: &'static str,
    /// Index of the payload's items; `None` unless it is JSON, NDJSON, or text with rows.
    items: Option<Py<ItemIndex>>,
    /// Index of the payload's lines; `None` if it is binary.
    lines: Option<Py<ItemIndex>>,
}

/// Detector of the type of a payload that arrives in pieces. The result does not depend on how the payload
/// is cut.
#[pyclass(frozen, module = "forebay._core")]
pub struct Survey(Mutex<Option<survey::Survey>>);

#[pymethods]
impl Survey {
    #[new]
    #[pyo3(signature = (is_json = None, rows = None))]
    fn new(
        is_json: Option<bool>,
        #[pyo3(from_py_with = optional_text::rows)] rows: Option<&str>,
    ) -> Result<Self, CoreError> {
        let rows = rows.map(to_row_kind).transpose()?;
        Ok(Self(Mutex::new(Some(survey::Survey::new(is_json, rows)))))
    }

    /// Examine the next piece of the payload.
    fn feed(&self, py: Python<'_>, data: Payload) -> Result<(), CoreError> {
        Ok(data.detach(py, |data| {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            slot.as_mut().ok_or_else(finished_error)?.feed(data);
            Ok::<_, Error>(())
        })?)
    }

    /// Return the result for all pieces. After this, `feed` raises `InvalidArgument`.
    fn finish(&self, py: Python<'_>) -> PyResult<Findings> {
        let survey = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let survey::Findings { nature, items, lines } =
            survey.ok_or_else(finished_error).map_err(CoreError::from)?.finish();
        let wrap = |index: Option<_>| index.map(|index| Py::new(py, ItemIndex(index))).transpose();
        let nature = match nature {
            Nature::Json => "json",
            Nature::Ndjson => "ndjson",
            Nature::Text => "text",
            Nature::Binary => "binary",
        };
        Ok(Findings { nature, items: wrap(items)?, lines: wrap(lines)? })
    }
}

fn finished_error() -> Error {
    let why = "this survey has finished; make a new one for the next payload";
    Error { kind: ErrorKind::InvalidArgument(why.to_owned()), index: 0 }
}

/// Return the XXH64 checksum of `data`. A zstd frame ends with the lower four bytes of it.
#[pyfunction]
pub fn checksum(py: Python<'_>, data: Payload) -> u64 {
    data.detach(py, forebay_core::checksum)
}
