use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use forebay_core::search::{self as core, Options, Pattern};
use forebay_core::{Error, ErrorKind, Result as CoreResult};
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
    /// JSON Pointer of the value in which the match starts.
    ///
    /// `None` without `paths`, outside of all values, or if it would cost too much to find.
    path: Option<String>,
    /// The match and the text around it, in whole characters and within its item; `None` if it is not text.
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
        let core::Match { start, end, line, item, path, context, context_start } = found;
        Self { start, end, line, item, path, context, context_start }
    }
}

/// A page of matches.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct SearchResult {
    /// The matches, in the order of the payload.
    matches: Vec<Py<Match>>,
    /// The `offset` of the next page; `None` if the payload was searched to its end.
    next_offset: Option<usize>,
}

#[pymethods]
impl SearchResult {
    fn __repr__(&self) -> String {
        let next_offset = repr(self.next_offset.as_ref());
        format!("SearchResult({} matches, next_offset={next_offset})", self.matches.len())
    }
}

/// Number of matches in a payload.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct MatchCount {
    /// How many matches there are.
    matches: u64,
    /// How many items have a match that begins in them; `None` without an item index.
    items: Option<u64>,
    /// Whether all of the payload was searched. If not, there may be more.
    is_complete: bool,
}

fn compile(pattern: &str, regex: bool, ignore_case: bool, mode: &str) -> CoreResult<Pattern> {
    match mode {
        "text" if regex => Pattern::regex(pattern, ignore_case),
        "text" => Pattern::literal(pattern, ignore_case),
        "values" => Pattern::in_values(pattern, regex, ignore_case),
        _ => {
            let why = format!("mode must be \"text\" or \"values\", not {mode:.32?}");
            Err(Error { kind: ErrorKind::InvalidArgument(why), index: 0 })
        }
    }
}

/// Find a literal or a regular expression, a page of `limit` matches at a time.
///
/// Following `next_offset` gives exactly the matches of one unlimited search. Finding one match takes at
/// most linear time in the size of the payload; keep `limit` small for untrusted patterns. Raise
/// `InvalidPattern` if the pattern does not compile or compiles to something too large.
#[pyfunction]
#[pyo3(signature = (data, pattern, *, regex = false, ignore_case = false, mode = "text", offset = 0, limit = 50, context = 80, index = None, paths = false))]
#[allow(clippy::too_many_arguments, reason = "the signature Python sees")]
pub fn search(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = text::pattern)] pattern: &str,
    regex: bool,
    ignore_case: bool,
    #[pyo3(from_py_with = text::mode)] mode: &str,
    #[pyo3(from_py_with = int::offset)] offset: i64,
    #[pyo3(from_py_with = int::limit)] limit: i64,
    #[pyo3(from_py_with = int::context)] context: i64,
    index: Option<&ItemIndex>,
    paths: bool,
) -> PyResult<SearchResult> {
    let index = index.map(|index| &index.0);
    let find = |data: &[u8]| {
        let options = Options {
            offset: to_usize("offset", offset)?,
            limit: to_usize("limit", limit)?,
            context: to_usize("context", context)?,
            paths,
        };
        core::search(data, &compile(pattern, regex, ignore_case, mode)?, options, index)
    };
    let page = data.detach(py, find).map_err(CoreError::from)?;
    let matches = page.matches.into_iter().map(|found| Py::new(py, Match::from(found)));
    Ok(SearchResult { matches: matches.collect::<PyResult<_>>()?, next_offset: page.next_offset })
}

/// Count the matches that `search` would find in a whole payload, and with an item index the items that have any.
#[pyfunction]
#[pyo3(signature = (data, pattern, *, regex = false, ignore_case = false, mode = "text", index = None, max_seconds = None))]
#[allow(clippy::too_many_arguments, reason = "the signature Python sees")]
pub fn count_matches(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = text::pattern)] pattern: &str,
    regex: bool,
    ignore_case: bool,
    #[pyo3(from_py_with = text::mode)] mode: &str,
    index: Option<&ItemIndex>,
    max_seconds: Option<f64>,
) -> Result<MatchCount, CoreError> {
    let index = index.map(|index| &index.0);
    // A duration that is too long for the clock is none.
    let max_duration = max_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
    let count = data.detach(py, |data| {
        Ok::<_, Error>(core::count(data, &compile(pattern, regex, ignore_case, mode)?, index, max_duration))
    })?;
    let core::Count { matches, items, is_complete } = count;
    Ok(MatchCount { matches, items, is_complete })
}

/// Counter of a literal in a payload that arrives in pieces.
// Boxed, because it holds vectors that need more alignment than Python gives an object.
#[pyclass(frozen, module = "forebay._core")]
pub struct LiteralCounter(Mutex<Box<core::LiteralCounter>>);

#[pymethods]
impl LiteralCounter {
    #[new]
    fn new(#[pyo3(from_py_with = text::pattern)] pattern: &str) -> Result<Self, CoreError> {
        let pattern = Pattern::literal(pattern, false)?;
        let counter = core::LiteralCounter::new(&pattern);
        let unusable = || Error { kind: ErrorKind::InvalidArgument("not a literal".to_owned()), index: 0 };
        Ok(Self(Mutex::new(Box::new(counter.ok_or_else(unusable)?))))
    }

    /// Count the matches that end in the next piece.
    fn feed(&self, py: Python<'_>, data: Payload) {
        data.detach(py, |data| self.0.lock().unwrap_or_else(PoisonError::into_inner).feed(data));
    }

    /// How many matches there are in all pieces.
    #[getter]
    fn matches(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).matches()
    }
}
