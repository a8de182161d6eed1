//! `Survey`, and what it finds; `checksum`.

use std::sync::{Mutex, PoisonError};

use forebay_core::{Error, ErrorKind, Nature, survey};
use pyo3::prelude::*;

use crate::error::CoreError;
use crate::index::ItemIndex;
use crate::payload::Payload;

/// What a payload is, as far as its bytes say.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct Findings {
    /// "json", "ndjson", "text" or "binary".
    nature: &'static str,
    /// Where its items are, if it is JSON or NDJSON.
    items: Option<Py<ItemIndex>>,
    /// Where its lines are, unless it is binary.
    lines: Option<Py<ItemIndex>>,
}

/// Finds out what a payload is that arrives in pieces; the answer is the same for every way of cutting it.
#[pyclass(frozen, module = "forebay._core")]
pub struct Survey(Mutex<Option<survey::Survey>>);

#[pymethods]
impl Survey {
    #[new]
    #[pyo3(signature = (is_json = None))]
    fn new(is_json: Option<bool>) -> Self {
        Self(Mutex::new(Some(survey::Survey::new(is_json))))
    }

    /// Takes the next piece.
    fn feed(&self, py: Python<'_>, data: Payload) -> Result<(), CoreError> {
        Ok(data.detached(py, |data| {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            slot.as_mut().ok_or_else(ended)?.feed(data);
            Ok::<_, Error>(())
        })?)
    }

    /// What the pieces were. Nothing can be fed after it.
    fn finish(&self, py: Python<'_>) -> PyResult<Findings> {
        let survey = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let survey::Findings { nature, items, lines } =
            survey.ok_or_else(ended).map_err(CoreError::from)?.finish();
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

fn ended() -> Error {
    let why = "this survey has finished; make a new one for the next payload";
    Error { kind: ErrorKind::InvalidArgument(why.to_owned()), index: 0 }
}

/// XXH64, the checksum of zstd's frames: those end in its lower four bytes.
#[pyfunction]
pub fn checksum(py: Python<'_>, data: Payload) -> u64 {
    data.detached(py, forebay_core::checksum)
}
