//! `Feed`: items as lines for DuckDB.

use forebay_core::feed;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::{int, to_u64};
use crate::error::CoreError;
use crate::index::ItemIndex;
use crate::payload::Payload;

/// Writer of items as lines of JSON for DuckDB. Chunks may be written in several threads.
#[pyclass(frozen, module = "forebay._core")]
pub struct Feed(feed::Feed);

#[pymethods]
impl Feed {
    #[new]
    #[pyo3(signature = (paths = None))]
    #[allow(clippy::needless_pass_by_value, reason = "PyO3 makes a list of the argument")]
    fn new(paths: Option<Vec<Vec<String>>>) -> Self {
        Self(feed::Feed::new(paths.as_deref()))
    }

    /// Return the lines of a chunk's items, the first of which is item `offset`.
    fn write<'py>(
        &self,
        py: Python<'py>,
        data: Payload,
        index: &ItemIndex,
        #[pyo3(from_py_with = int::offset)] offset: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let write = |data: &[u8]| self.0.write(data, &index.0, to_u64("offset", offset)?);
        let lines = data.detach(py, write).map_err(CoreError::from)?;
        Ok(PyBytes::new(py, &lines))
    }

    /// Return name, type, key and read type of each column; `None` if all chunks must be written again.
    fn finish(&self, py: Python<'_>, index: &ItemIndex) -> Option<Vec<(String, String, String, String)>> {
        let columns = py.detach(|| self.0.finish(&index.0))?;
        let columns = columns.into_iter();
        Some(columns.map(|column| (column.name, column.sql_type, column.key, column.read_type)).collect())
    }

    /// Return the names of the fields that were not kept, in lower case; `None` if there were too many.
    fn skipped(&self) -> Option<Vec<String>> {
        self.0.skipped()
    }
}
