//! `index_items`, `index_lines`, and what they return.

use std::sync::{Mutex, PoisonError};

use headgate_core::index::{self, Kind};
use headgate_core::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::{int, page, repr};
use crate::error::CoreError;
use crate::payload::Payload;

#[pyclass(frozen, get_all, module = "headgate._core")]
pub struct Span {
    start: u64,
    end: u64,
    first: u64,
    count: u64,
}

#[pymethods]
impl Span {
    fn __repr__(&self) -> String {
        let Self { start, end, first, count } = self;
        format!("Span(start={start}, end={end}, first={first}, count={count})")
    }
}

#[pyclass(frozen, eq, module = "headgate._core")]
#[derive(PartialEq)]
pub struct ItemIndex(pub index::ItemIndex);

#[pymethods]
impl ItemIndex {
    #[staticmethod]
    fn from_bytes(data: &[u8]) -> Result<Self, CoreError> {
        Ok(Self(index::ItemIndex::from_bytes(data)?))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.0.len()).unwrap_or(usize::MAX)
    }

    #[getter]
    fn kind(&self) -> Option<&'static str> {
        self.0.kind().map(|kind| match kind {
            Kind::Array => "array",
            Kind::Ndjson => "ndjson",
            Kind::Lines => "lines",
        })
    }

    #[getter]
    fn path(&self) -> Option<&str> {
        self.0.path()
    }

    #[getter]
    fn start(&self) -> u64 {
        self.0.start()
    }

    #[getter]
    fn end(&self) -> u64 {
        self.0.end()
    }

    fn span(
        &self,
        #[pyo3(from_py_with = int)] offset: i64,
        #[pyo3(from_py_with = int)] limit: i64,
    ) -> Result<Span, CoreError> {
        let index::Span { start, end, first, count } = self.0.span(page(offset, limit, None)?);
        Ok(Span { start, end, first, count })
    }

    fn __repr__(&self) -> String {
        let kind = repr(self.kind().as_ref());
        let path = repr(self.path().as_ref());
        format!("ItemIndex(len={}, kind={kind}, path={path})", self.0.len())
    }
}

/// `None` once finished or failed: there is nothing to go on from.
#[pyclass(frozen, module = "headgate._core")]
pub struct ItemIndexer(Mutex<Option<index::ItemIndexer>>);

#[pymethods]
impl ItemIndexer {
    #[new]
    #[pyo3(signature = (path = None, *, validate = true))]
    fn new(path: Option<&str>, validate: bool) -> Result<Self, CoreError> {
        Ok(Self(Mutex::new(Some(index::ItemIndexer::new(path, validate)?))))
    }

    fn feed(&self, py: Python<'_>, data: Payload) -> Result<(), CoreError> {
        Ok(data.detached(py, |data| {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut indexer = slot.take().ok_or_else(ended)?;
            indexer.feed(data)?;
            *slot = Some(indexer);
            Ok::<_, Error>(())
        })?)
    }

    fn finish(&self) -> Result<ItemIndex, CoreError> {
        let indexer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(ItemIndex(indexer.ok_or_else(ended)?.finish()?))
    }
}

fn ended() -> Error {
    let why = "this indexer has finished or failed; make a new one for the next payload";
    Error { kind: ErrorKind::InvalidArgument(why.to_owned()), index: 0 }
}

#[pyfunction]
#[pyo3(signature = (data, path = None, *, validate = true))]
pub fn index_items(
    py: Python<'_>,
    data: Payload,
    path: Option<&str>,
    validate: bool,
) -> Result<ItemIndex, CoreError> {
    Ok(ItemIndex(data.detached(py, |data| index::index_items(data, path, validate))?))
}

#[pyfunction]
pub fn index_lines(py: Python<'_>, data: Payload) -> ItemIndex {
    ItemIndex(data.detached(py, index::index_lines))
}
