//! `index_items`, `index_lines` and their results.

use std::sync::{Mutex, PoisonError};

use forebay_core::index::{self, Kind};
use forebay_core::{Error, ErrorKind};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::{int, optional_text, page_range, repr, to_u64, to_usize};
use crate::error::CoreError;
use crate::payload::Payload;

/// A byte range, `data[start:end]`, that contains the requested items completely.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct Span {
    /// Offset of the first byte to read.
    start: u64,
    /// Offset after the last byte to read.
    end: u64,
    /// Number of the item that starts at byte `start`. The first requested item is in the same block.
    first: u64,
    /// How many of the requested items exist.
    count: u64,
}

#[pymethods]
impl Span {
    fn __repr__(&self) -> String {
        let Self { start, end, first, count } = self;
        format!("Span(start={start}, end={end}, first={first}, count={count})")
    }
}

/// A part of a payload, `data[start:end]`, that holds whole items: some blocks of its index.
#[pyclass(frozen, get_all, module = "forebay._core")]
pub struct Chunk {
    /// Offset of the first byte, which begins an item.
    start: u64,
    /// Offset after the last byte.
    end: u64,
    /// Number of the first item.
    first: u64,
    /// How many items the chunk holds.
    count: u64,
    /// Number of the first block.
    block: usize,
    /// How many blocks the chunk has.
    block_count: usize,
}

impl Chunk {
    pub fn to_core(&self) -> index::Chunk {
        let &Self { start, end, first, count, block, block_count } = self;
        index::Chunk { start, end, first, count, block, block_count }
    }
}

#[pymethods]
impl Chunk {
    fn __repr__(&self) -> String {
        let Self { start, end, first, count, block, block_count } = self;
        format!(
            "Chunk(start={start}, end={end}, first={first}, count={count}, block={block}, block_count={block_count})"
        )
    }
}

/// Locations of the items of a payload: one entry per 64 KiB block, whatever the size of the items.
///
/// Created by `index_items` and `index_lines`. It can be stored (`to_bytes`) and pickled.
#[pyclass(frozen, eq, module = "forebay._core")]
#[derive(PartialEq)]
pub struct ItemIndex(pub index::ItemIndex);

#[pymethods]
impl ItemIndex {
    /// Load an index that `to_bytes` wrote.
    ///
    /// Raise `CorruptIndex` for any other bytes.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: PyBuffer<u8>) -> PyResult<Self> {
        // A copy, because someone else may write to the buffer. An index is small.
        let index = index::ItemIndex::from_bytes(&data.to_vec(py)?).map_err(CoreError::from)?;
        Ok(Self(index))
    }

    /// Return the index as bytes, a few per entry.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((slf.getattr("from_bytes")?, (slf.get().to_bytes(slf.py()),)))
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.0.len()).unwrap_or(usize::MAX)
    }

    /// Kind of items: "array", "map", "ndjson", "lines", "csv" or "tsv"; `None` if the payload has no items.
    #[getter]
    fn kind(&self) -> Option<&'static str> {
        self.0.kind().map(|kind| match kind {
            Kind::Array => "array",
            Kind::Ndjson => "ndjson",
            Kind::Lines => "lines",
            Kind::Csv => "csv",
            Kind::Tsv => "tsv",
            Kind::Map => "map",
        })
    }

    /// Names of the columns, which are the keys of each item; `None` unless the items are rows of CSV or TSV.
    #[getter]
    fn columns(&self) -> Option<Vec<String>> {
        self.0.column_names()
    }

    /// JSON Pointer of the items' array or map; `""` if it is the whole document, and for NDJSON and rows.
    #[getter]
    fn path(&self) -> Option<&str> {
        self.0.path()
    }

    /// Offset of the array's or map's opening bracket, or of the first line; 0 for rows.
    #[getter]
    fn start(&self) -> u64 {
        self.0.start()
    }

    /// Offset after the array's or map's closing bracket, or after the last line.
    #[getter]
    fn end(&self) -> u64 {
        self.0.end()
    }

    /// Return a byte range that contains `limit` complete items, the first of which is item `offset`.
    fn span(
        &self,
        #[pyo3(from_py_with = int::offset)] offset: i64,
        #[pyo3(from_py_with = int::limit)] limit: i64,
    ) -> Result<Span, CoreError> {
        let index::Span { start, end, first, count } = self.0.span(page_range(offset, limit, None)?);
        Ok(Span { start, end, first, count })
    }

    /// Return the chunk that begins with block number `block`, or `None` after the last block.
    ///
    /// It has as many blocks as fit into `max_bytes`, but at least one.
    fn chunk(
        &self,
        #[pyo3(from_py_with = int::block)] block: i64,
        #[pyo3(from_py_with = int::max_bytes)] max_bytes: i64,
    ) -> Result<Option<Chunk>, CoreError> {
        let chunk = self.0.chunk(to_usize("block", block)?, to_u64("max_bytes", max_bytes)?);
        Ok(chunk.map(|index::Chunk { start, end, first, count, block, block_count }| Chunk {
            start,
            end,
            first,
            count,
            block,
            block_count,
        }))
    }

    fn __repr__(&self) -> String {
        let kind = repr(self.kind().as_ref());
        let path = repr(self.path().as_ref());
        format!("ItemIndex(len={}, kind={kind}, path={path})", self.0.len())
    }
}

/// Indexer of a payload that arrives in pieces. The result does not depend on how the payload is cut.
#[pyclass(frozen, module = "forebay._core")]
pub struct ItemIndexer(Slot);

/// `None` once finished or failed.
type Slot = Mutex<Option<index::ItemIndexer>>;

#[pymethods]
impl ItemIndexer {
    #[new]
    #[pyo3(signature = (path = None, *, validate = true))]
    fn new(
        #[pyo3(from_py_with = optional_text::path)] path: Option<&str>,
        validate: bool,
    ) -> Result<Self, CoreError> {
        Ok(Self(Mutex::new(Some(index::ItemIndexer::new(path, validate)?))))
    }

    /// Index the next piece of the payload.
    ///
    /// Raise `InvalidJSON` for invalid JSON, in some cases only with a later piece or with `finish`.
    fn feed(&self, py: Python<'_>, data: Payload) -> Result<(), CoreError> {
        Ok(data.detach(py, |data| {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut indexer = slot.take().ok_or_else(finished_error)?;
            indexer.feed(data)?;
            *slot = Some(indexer);
            Ok::<_, Error>(())
        })?)
    }

    /// Return the index of all pieces. After this, `feed` raises `InvalidArgument`.
    fn finish(&self, py: Python<'_>) -> Result<ItemIndex, CoreError> {
        // Another thread may be feeding a large piece.
        Ok(ItemIndex(py.detach(|| {
            let indexer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            indexer.ok_or_else(finished_error)?.finish()
        })?))
    }
}

fn finished_error() -> Error {
    let why = "this indexer has finished or failed; make a new one for the next payload";
    Error { kind: ErrorKind::InvalidArgument(why.to_owned()), index: 0 }
}

/// Index the items of a top-level array, of the array or object at `path` (a JSON Pointer), or of NDJSON.
///
/// Without a `path`, the items of an object are those of its *main* collection: the array or map of like values with
/// the most bytes, at most four keys deep. `validate=True` checks the whole payload against RFC 8259 and raises `InvalidJSON`.
#[pyfunction]
#[pyo3(signature = (data, path = None, *, validate = true))]
pub fn index_items(
    py: Python<'_>,
    data: Payload,
    #[pyo3(from_py_with = optional_text::path)] path: Option<&str>,
    validate: bool,
) -> Result<ItemIndex, CoreError> {
    Ok(ItemIndex(data.detach(py, |data| index::index_items(data, path, validate))?))
}

/// Index the lines of a text. Every line counts, blank or not; the last one needs no newline.
#[pyfunction]
pub fn index_lines(py: Python<'_>, data: Payload) -> ItemIndex {
    ItemIndex(data.detach(py, index::index_lines))
}
