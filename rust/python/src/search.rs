use headgate_core::search::{self as core, Options, Pattern};
use pyo3::prelude::*;

use crate::convert::{int, repr, size};
use crate::error::CoreError;
use crate::index::ItemIndex;
use crate::payload::Payload;

/// One place a pattern was found.
#[pyclass(frozen, get_all, module = "headgate._core")]
pub struct Match {
    start: usize,
    end: usize,
    line: Option<u64>,
    item: Option<u64>,
    context: Option<String>,
    context_start: usize,
}

#[pymethods]
impl Match {
    fn __repr__(&self) -> String {
        format!("Match(start={}, end={})", self.start, self.end)
    }
}

impl From<core::Match> for Match {
    fn from(found: core::Match) -> Self {
        let core::Match { start, end, line, item, context, context_start } = found;
        Self { start, end, line, item, context, context_start }
    }
}

/// A page of matches.
#[pyclass(frozen, get_all, module = "headgate._core")]
pub struct SearchResult {
    matches: Vec<Py<Match>>,
    next_start: Option<usize>,
}

#[pymethods]
impl SearchResult {
    fn __repr__(&self) -> String {
        let next_start = repr(self.next_start.as_ref());
        format!("SearchResult({} matches, next_start={next_start})", self.matches.len())
    }
}

#[pyfunction]
#[pyo3(signature = (data, pattern, *, regex = false, ignore_case = false, start = 0, limit = 50, context = 80, index = None))]
#[allow(clippy::too_many_arguments, reason = "the signature Python sees")]
pub fn search(
    py: Python<'_>,
    data: Payload,
    pattern: &str,
    regex: bool,
    ignore_case: bool,
    #[pyo3(from_py_with = int)] start: i64,
    #[pyo3(from_py_with = int)] limit: i64,
    #[pyo3(from_py_with = int)] context: i64,
    index: Option<&ItemIndex>,
) -> PyResult<SearchResult> {
    let index = index.map(|index| &index.0);
    let find = |data: &[u8]| {
        let options = Options {
            start: size("start", start)?,
            limit: size("limit", limit)?,
            context: size("context", context)?,
        };
        let compile = if regex { Pattern::regex } else { Pattern::literal };
        core::search(data, &compile(pattern, ignore_case)?, options, index)
    };
    let page = data.detached(py, find).map_err(CoreError::from)?;
    let matches = page.matches.into_iter().map(|found| Py::new(py, Match::from(found)));
    Ok(SearchResult { matches: matches.collect::<PyResult<_>>()?, next_start: page.next_start })
}
