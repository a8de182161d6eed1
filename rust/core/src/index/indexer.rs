//! Indexing of payloads, whole or in pieces.

use super::builder::IndexBuilder;
use super::locator::Locator;
use super::parallel::{self, Division};
use super::{BLOCK_BYTES, ItemIndex, Kind};
use crate::csv::RowSplitter;
use crate::error::Result;
use crate::pointer::Pointer;
use crate::scan::Isa;
use crate::scan::rows::Rows;
use crate::validate::Validator;

/// Bytes that are validated and located in turn.
pub(super) const PIECE_BYTES: usize = BLOCK_BYTES as usize;

/// Indexes a payload that arrives in pieces. The result does not depend on where it is cut.
#[derive(Debug, Clone)]
pub struct ItemIndexer {
    pub(super) validator: Option<Validator>,
    pub(super) locator: Locator,
}

impl ItemIndexer {
    /// Creates an indexer for the array or object at `path`, or for the main collection if there is no path.
    ///
    /// # Errors
    /// `InvalidArgument` if `path` is not a JSON Pointer.
    pub fn new(path: Option<&str>, validate: bool) -> Result<Self> {
        Self::with_isa(path, validate, Isa::detect())
    }

    /// Like [`ItemIndexer::new`], with a given instruction set.
    ///
    /// # Errors
    /// `InvalidArgument` if `path` is not a JSON Pointer.
    pub fn with_isa(path: Option<&str>, validate: bool, isa: Isa) -> Result<Self> {
        Ok(Self {
            validator: validate.then(|| Validator::new(isa)),
            locator: Locator::new(path.map(Pointer::parse).transpose()?, isa),
        })
    }

    /// Creates a validating indexer for the main collection of a payload that is known to be UTF-8.
    pub(crate) fn for_utf8() -> Self {
        let isa = Isa::detect();
        Self { validator: Some(Validator::for_utf8(isa)), locator: Locator::new(None, isa) }
    }

    /// Feeds the next piece of the payload.
    ///
    /// # Errors
    /// `InvalidJson` as soon as the payload is known to be invalid, if it is validated.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(validator) = &mut self.validator else {
            self.locator.feed(bytes);
            return Ok(());
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            // Pieces end at multiples of their size, so that none has the boundary of two index blocks inside. They
            // are small enough to stay in the cache between the passes.
            let len = PIECE_BYTES - (self.locator.pos() % PIECE_BYTES as u64) as usize;
            let (piece, others) = rest.split_at(len.min(rest.len()));
            validator.begin_count(self.locator.separator_depth());
            validator.feed(piece)?;
            // Deep inside a collection the validator's masks are enough, so the piece is not read again.
            let is_located = validator.counted().is_some_and(|counted| self.locator.skip(piece, counted));
            if !is_located {
                self.locator.feed(piece);
            }
            rest = others;
        }
        Ok(())
    }

    /// Returns the index of everything that was fed.
    ///
    /// # Errors
    /// `InvalidJson` if the payload ends too early, `NoItems` if there is no array or object at the path.
    pub fn finish(self) -> Result<ItemIndex> {
        self.finish_validation()?.finish()
    }

    /// Checks that the payload is complete, if it is validated.
    pub(super) fn finish_validation(self) -> Result<Locator> {
        if let Some(validator) = self.validator {
            validator.finish()?;
        }
        Ok(self.locator)
    }
}

/// Indexes the items of a top-level array, of the array or object at `path`, of NDJSON, or of the main collection of
/// a document: its largest array or map of like values. Validates a large payload in two threads if it can.
///
/// # Errors
/// Those of [`ItemIndexer`].
pub fn index_items(data: &[u8], path: Option<&str>, validate: bool) -> Result<ItemIndex> {
    let mut indexer = ItemIndexer::new(path, validate)?;
    if let Some(division) = Division::new(data.len()).filter(|_| validate) {
        return parallel::index(indexer, data, division).0;
    }
    indexer.feed(data)?;
    indexer.finish()
}

/// Indexes the lines of a text that arrives in pieces.
#[derive(Debug, Clone)]
pub struct LineIndexer {
    items: IndexBuilder,
    rows: Rows,
    pos: u64,
}

impl Default for LineIndexer {
    fn default() -> Self {
        Self { items: IndexBuilder::default(), rows: Rows::inside(false), pos: 0 }
    }
}

impl LineIndexer {
    /// Feeds the next piece of the text.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.pos == 0 && !bytes.is_empty() {
            self.items.push(0);
        }
        let isa = Isa::detect();
        let mut rest = bytes;
        while !rest.is_empty() {
            let consumed = self.items.scan_rows(&mut self.rows, isa, self.pos, rest);
            self.pos += consumed as u64;
            rest = &rest[consumed..];
        }
    }

    /// Returns the index of everything that was fed. A newline at the very end does not start a line.
    #[must_use]
    pub fn finish(self) -> ItemIndex {
        self.items.into_index(Kind::Lines, None, 0, self.pos)
    }
}

/// Maximum bytes before the first row of CSV or TSV. The index holds a copy of them.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Indexes the rows of CSV or TSV that arrives in pieces. The result does not depend on where it is cut.
#[derive(Debug, Clone)]
pub(crate) struct RowIndexer {
    kind: Kind,
    splitter: RowSplitter,
    items: IndexBuilder,
    /// Everything before the first row; `None` if that is too long.
    header: Option<Vec<u8>>,
    pos: u64,
}

impl RowIndexer {
    /// Creates an indexer; `None` unless items of this kind are rows.
    pub(crate) fn new(kind: Kind) -> Option<Self> {
        let splitter = RowSplitter::new(kind.delimiter()?);
        Some(Self { kind, splitter, items: IndexBuilder::default(), header: Some(Vec::new()), pos: 0 })
    }

    /// Feeds the next piece of the payload.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.header.is_none() {
            return;
        }
        let (mut pos, is_header) = (0, self.items.is_empty());
        let mut header_end = bytes.len();
        while let Some(start) = self.splitter.next_start(&bytes[pos..]) {
            pos += start;
            if self.items.is_empty() {
                header_end = pos;
            }
            self.items.push(self.pos + pos as u64);
        }
        self.pos += bytes.len() as u64;
        if let (true, Some(header)) = (is_header, &mut self.header) {
            header.extend_from_slice(&bytes[..header_end]);
            if header.len() > MAX_HEADER_BYTES {
                self.header = None;
            }
        }
    }

    /// Returns the index of everything that was fed; `None` if the header is longer than 64 KiB.
    pub(crate) fn finish(self) -> Option<ItemIndex> {
        let header = self.header?;
        let index = self.items.into_index(self.kind, Some(String::new()), 0, self.pos);
        Some(ItemIndex { header, ..index })
    }
}

/// Indexes the lines of a text.
#[must_use]
pub fn index_lines(data: &[u8]) -> ItemIndex {
    let mut indexer = LineIndexer::default();
    indexer.feed(data);
    indexer.finish()
}
