//! `Filter`: items that fulfil conditions.

use forebay_core::filter;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::{int, text, to_usize};
use crate::error::CoreError;
use crate::index::{Chunk, ItemIndex};
use crate::payload::Payload;

/// Items of a chunk that match a filter.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct Selection {
    /// A JSON array of the items. A row of CSV or TSV is an object of strings.
    content: Py<PyBytes>,
    /// The number of each item.
    numbers: Vec<u64>,
}

#[pymethods]
impl Selection {
    fn __repr__(&self) -> String {
        format!("Selection(numbers={:?})", self.numbers)
    }
}

/// Conditions on the fields of an item, from a JSON object.
///
/// Raise `InvalidArgument` for a condition that is not understood.
#[pyclass(frozen, module = "forebay._core")]
pub struct Filter(filter::Filter);

#[pymethods]
impl Filter {
    #[new]
    fn new(
        #[pyo3(from_py_with = text::conditions)] conditions: &str,
        columns: Vec<String>,
    ) -> Result<Self, CoreError> {
        Ok(Self(filter::Filter::parse(conditions, &columns)?))
    }

    /// The fields that conditions are on, and whether an item must have the field to match.
    #[getter]
    fn fields(&self) -> Vec<(String, bool)> {
        self.0.fields().iter().map(|field| (field.name.clone(), field.is_required)).collect()
    }

    /// Return how many items match in each block of a chunk.
    fn count(
        &self,
        py: Python<'_>,
        data: Payload,
        index: &ItemIndex,
        chunk: &Chunk,
    ) -> Result<Vec<u64>, CoreError> {
        let (index, chunk) = (&index.0, chunk.to_core());
        Ok(data.detach(py, |data| self.0.count(data, index, &chunk))?)
    }

    /// Return the items of a chunk that match, without the first `skip` ones, at most `limit`.
    fn select(
        &self,
        py: Python<'_>,
        data: Payload,
        index: &ItemIndex,
        chunk: &Chunk,
        #[pyo3(from_py_with = int::skip)] skip: i64,
        #[pyo3(from_py_with = int::limit)] limit: i64,
    ) -> Result<Selection, CoreError> {
        let (index, chunk) = (&index.0, chunk.to_core());
        let (skip, limit) = (to_usize("skip", skip)?, to_usize("limit", limit)?);
        let selection = data.detach(py, |data| self.0.select(data, index, &chunk, skip, limit))?;
        let filter::Selection { content, numbers } = selection;
        Ok(Selection { content: PyBytes::new(py, &content).unbind(), numbers })
    }
}
