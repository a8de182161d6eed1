//! Indexing a payload, whole or as it arrives.

use super::items::Items;
use super::locator::Locator;
use super::{BLOCK, ItemIndex, Kind};
use crate::error::Result;
use crate::pointer::Pointer;
use crate::scan::Isa;
use crate::scan::rows::Rows;
use crate::validate::Validator;

/// Indexes a payload that arrives in pieces. Every way of cutting it gives the same answer.
#[derive(Debug, Clone)]
pub struct ItemIndexer {
    validator: Option<Validator>,
    locator: Locator,
}

impl ItemIndexer {
    /// Looks for the items at `path`, or for the main array where there is none.
    ///
    /// # Errors
    /// `InvalidArgument` if `path` is not a JSON Pointer.
    pub fn new(path: Option<&str>, validate: bool) -> Result<Self> {
        Self::with_isa(path, validate, Isa::detect())
    }

    /// The same with instructions of one's choice.
    ///
    /// # Errors
    /// `InvalidArgument` if `path` is not a JSON Pointer.
    pub fn with_isa(path: Option<&str>, validate: bool, isa: Isa) -> Result<Self> {
        Ok(Self {
            validator: validate.then(|| Validator::new(isa)),
            locator: Locator::new(path.map(Pointer::parse).transpose()?, isa),
        })
    }

    /// Looks for the main items of what is known to be text, and validates the rest.
    pub(crate) fn of_text() -> Self {
        let isa = Isa::detect();
        Self { validator: Some(Validator::of_text(isa)), locator: Locator::new(None, isa) }
    }

    /// Takes the next piece of the payload.
    ///
    /// # Errors
    /// `InvalidJson` as soon as the payload cannot be right, if it is to be validated.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(validator) = &mut self.validator else {
            self.locator.feed(bytes);
            return Ok(());
        };
        // In pieces that stay in the cache between the two passes.
        for piece in bytes.chunks(BLOCK as usize / 2) {
            validator.feed(piece)?;
            self.locator.feed(piece);
        }
        Ok(())
    }

    /// The index of all that was fed.
    ///
    /// # Errors
    /// `InvalidJson` if the payload ends too early, `PathNotFound` if it has no array at the path.
    pub fn finish(self) -> Result<ItemIndex> {
        if let Some(validator) = self.validator {
            validator.finish()?;
        }
        self.locator.finish()
    }
}

/// Finds the items of a payload: of a top-level array, of the array at `path`, of NDJSON, or of the main
/// array of an object.
///
/// # Errors
/// As [`ItemIndexer`].
pub fn index_items(data: &[u8], path: Option<&str>, validate: bool) -> Result<ItemIndex> {
    let mut indexer = ItemIndexer::new(path, validate)?;
    indexer.feed(data)?;
    indexer.finish()
}

/// Indexes the lines of a text that arrives in pieces.
#[derive(Debug, Clone)]
pub struct LineIndexer {
    found: Items,
    rows: Rows,
    pos: u64,
}

impl Default for LineIndexer {
    fn default() -> Self {
        Self { found: Items::default(), rows: Rows::inside(false), pos: 0 }
    }
}

impl LineIndexer {
    /// Takes the next piece of the text.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.pos == 0 && !bytes.is_empty() {
            self.found.push(0);
        }
        let isa = Isa::detect();
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.found.take_rows(&mut self.rows, isa, self.pos, rest);
            self.pos += taken as u64;
            rest = &rest[taken..];
        }
    }

    /// The index of all that was fed. A newline at the very end begins no line.
    #[must_use]
    pub fn finish(self) -> ItemIndex {
        self.found.into_index(Kind::Lines, None, 0, self.pos)
    }
}

/// Finds the lines of a text.
#[must_use]
pub fn index_lines(data: &[u8]) -> ItemIndex {
    let mut indexer = LineIndexer::default();
    indexer.feed(data);
    indexer.finish()
}
