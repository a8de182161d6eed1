//! Filters: which items fulfil conditions on their fields, without parsing the items.
//!
//! All conditions must hold. A field is named as in [`project`](crate::project()); arrays on the way to it are mapped
//! over, and so is a field that is an array itself. It then has several values, and a condition holds if any
//! of them passes; different conditions may hold for different values. Of duplicate keys the first counts.
//!
//! - `=` and `in` compare scalars: numbers by value and exactly, text by code points. Values of different types are
//!   never equal. `!=` is the negation of `=`, so it holds for items that lack the field.
//! - `<`, `<=`, `>`, `>=` compare numbers with numbers and text with text.
//! - `contains` finds a part of a text, or an element of an array.
//! - `matches` finds a regular expression of [`Pattern::regex`](crate::Pattern::regex) in a text.
//! - `exists` tells whether the field is there, even if it is null.
//!
//! The fields of CSV and TSV are text. One that is written like a JSON number compares as a number with a number.

mod condition;
mod matcher;
mod number;
mod parse;
mod prefilter;
#[cfg(test)]
mod tests;

use condition::Condition;
use matcher::Matcher;

use crate::error::{Error, Result};
use crate::index::{Chunk, ItemIndex};
use crate::pointer::unescape;
use crate::split::ItemSplitter;

/// Conditions on the fields of an item.
#[derive(Debug)]
pub struct Filter {
    fields: Fields,
    conditions: Vec<Condition>,
    names: Vec<Field>,
}

/// A field that a condition is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The field as it was named.
    pub name: String,
    /// Whether an item must have the field to match.
    pub is_required: bool,
}

/// Fields merged into a tree, each level sorted by key, with the conditions on the value itself.
#[derive(Debug, Default)]
struct Fields {
    conditions: Vec<usize>,
    children: Vec<(String, Fields)>,
}

impl Fields {
    fn insert(&mut self, path: &[String], condition: usize) {
        let Some((key, rest)) = path.split_first() else {
            return self.conditions.push(condition);
        };
        let at = match self.position(key.as_bytes()) {
            Ok(at) => at,
            Err(at) => {
                self.children.insert(at, (key.clone(), Self::default()));
                at
            }
        };
        self.children[at].1.insert(rest, condition);
    }

    fn position(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        self.children.binary_search_by(|(name, _)| name.as_bytes().cmp(key))
    }

    fn find(&self, raw_key: &[u8]) -> Option<usize> {
        match memchr::memchr(b'\\', raw_key) {
            None => self.position(raw_key).ok(),
            Some(_) => self.position(unescape(raw_key)?.as_bytes()).ok(),
        }
    }
}

/// Items that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// A JSON array of the items. A row of CSV or TSV is an object of strings.
    pub content: Vec<u8>,
    /// The number of each item.
    pub numbers: Vec<u64>,
}

impl Filter {
    /// Returns the fields that conditions are on, except those that must be absent.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.names
    }

    /// Counts the matching items in each block of a chunk. `data` are the bytes of the chunk.
    pub fn count(&self, data: &[u8], index: &ItemIndex, chunk: &Chunk) -> Result<Vec<u64>> {
        let starts: Vec<u64> = index.block_starts(chunk).collect();
        let mut counts = vec![0; starts.len()];
        let mut block = 0;
        self.visit(data, index, chunk, |number, _| {
            while starts.get(block + 1).is_some_and(|&next| next <= number) {
                block += 1;
            }
            if let Some(count) = counts.get_mut(block) {
                *count += 1;
            }
            true
        })?;
        Ok(counts)
    }

    /// Returns the matching items of a chunk after the first `skip` ones, at most `limit`.
    pub fn select(
        &self,
        data: &[u8],
        index: &ItemIndex,
        chunk: &Chunk,
        skip: usize,
        limit: usize,
    ) -> Result<Selection> {
        let mut selection = Selection { content: vec![b'['], numbers: Vec::new() };
        let mut skipped = 0;
        self.visit(data, index, chunk, |number, json| {
            if skipped < skip {
                skipped += 1;
                return true;
            }
            if selection.numbers.len() == limit {
                return false;
            }
            if !selection.numbers.is_empty() {
                selection.content.push(b',');
            }
            selection.content.extend_from_slice(json);
            selection.numbers.push(number);
            true
        })?;
        selection.content.push(b']');
        Ok(selection)
    }

    /// Calls `on_match` with the number and the JSON of each matching item, until it returns `false`.
    fn visit(
        &self,
        data: &[u8],
        index: &ItemIndex,
        chunk: &Chunk,
        mut on_match: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        let splitter = ItemSplitter::new(index)?;
        let mut matcher = Matcher::new(self, splitter.has_rows());
        let mut candidates = prefilter::Candidates::new(self, splitter.has_rows(), data);
        let mut buffer = Vec::new();
        let mut count = 0;
        for span in splitter.spans(data) {
            let number = chunk.first.saturating_add(count);
            count += 1;
            if !candidates.may_match(&span) {
                continue;
            }
            let json = splitter.json(&data[span], &mut buffer);
            if matcher.matches(json)? && !on_match(number, json) {
                return Ok(());
            }
        }
        if count != chunk.count {
            return Err(Error::index("the items are not where it says"));
        }
        Ok(())
    }
}
