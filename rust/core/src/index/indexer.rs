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

/// Finds the lines of a text.
#[must_use]
pub fn index_lines(data: &[u8]) -> ItemIndex {
    if data.is_empty() {
        return ItemIndex { kind: Some(Kind::Lines), ..ItemIndex::default() };
    }
    let mut found = Items::default();
    found.push(0);
    let mut rows = Rows::inside(false);
    let mut pos = 0;
    while pos < data.len() {
        pos += found.take_rows(&mut rows, Isa::detect(), pos as u64, &data[pos..]);
    }
    found.into_index(Kind::Lines, None, 0, data.len() as u64)
}
