use forebay_core::search::{self as core, Options, Pattern};
use pyo3::prelude::*;

use crate::convert::{int, repr, text, to_usize};
use crate::error::CoreError;
use crate::index::ItemIndex;
use crate::payload::Payload;

/// A match of a pattern.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct Match {
    /// Offset of the match's first byte.
    start: usize,
    /// Offset of the byte after the match.
    end: usize,
    /// Number of the line in which the match starts, from 0; `None` if an item index was given.
    line: Option<u64>,
    /// Number of the item in which the match starts; `None` without an item index, or outside the items.
    item: Option<u64>,
    /// The match and the text around it, in whole characters; `None` if the match is not text.
    context: Option<String>,
    /// Offset of the context's first byte.
    context_start: usize,
}

#[pymethods]
impl Match {
    fn __repr__(&self) -> String {
        let Self { start, end, line, item, .. } = self;
        let (line, item) = (repr(line.as_ref()), repr(item.as_ref()));
        format!("Match(start={start}, end={end}, line={line}, item={item})")
    }
}

impl From<core::Match> for Match {
    fn from(found: core::Match) -> Self {
        let core::Match { start, end, line, item, context, context_start } = found;
        Self { start, end, line, item, context, context_start }
    }
}

/// A page of matches.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct SearchResult {
    /// The matches, in the order of the payload.
    matches: Vec<Py<Match>>,
    /// The `start` of the next page; `None` if the payload was searched to its end.
    next_start: Option<usize>,
}

#[pymethods]
impl SearchResult {
    fn __repr__(&self) -> String {
        let next_start = repr(self.next_start.as_ref());
        format!("SearchResult({} matches, next_start={next_start})", self.matches.len())
    }
}

/// Find a literal or a regular expression, a page of `limit` matches at a time.
///
/// Following `next_start` gives exactly the matches of one unlimited search. Finding one match takes at
/// most linear time in the size of the payload; keep `limit` small for untrusted patterns. Raise
/// `InvalidPattern` if the pattern does not compile or compiles to something too large.
#[pyfunction]
#[pyo3(signature = (data, pattern, *, regex = false, ignore_case = false, start = 0, limit = 50, context = 80, index = None))]
#[allow(clippy::too_many_arguments, reason = "the signature Python sees")]
pub fn search(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = text::pattern)] pattern: &str,
    regex: bool,
    ignore_case: bool,
    #[pyo3(from_py_with = int::start)] start: i64,
    #[pyo3(from_py_with = int::limit)] limit: i64,
    #[pyo3(from_py_with = int::context)] context: i64,
    index: Option<&ItemIndex>,
) -> PyResult<SearchResult> {
    let index = index.map(|index| &index.0);
    let find = |data: &[u8]| {
        let options = Options {
            start: to_usize("start", start)?,
            limit: to_usize("limit", limit)?,
            context: to_usize("context", context)?,
        };
        let compile = if regex { Pattern::regex } else { Pattern::literal };
        core::search(data, &compile(pattern, ignore_case)?, options, index)
    };
    let page = data.detach(py, find).map_err(CoreError::from)?;
    let matches = page.matches.into_iter().map(|found| Py::new(py, Match::from(found)));
    Ok(SearchResult { matches: matches.collect::<PyResult<_>>()?, next_start: page.next_start })
}
