//! The shape of a document in one line: what a reader needs to choose a path.
//!
//! `{statuses: [{id: int, text: str, place?: {…}}] ×100, count: int}`
//!
//! - `int`, `float`, `str`, `bool`, `null`; alternatives are joined by `|`; integers among floats are floats;
//! - `key?` is missing from some of the objects merged here;
//! - `[T] ×100` is an array of 100 items, `×0-3` stands for arrays of none to three;
//! - `{<138586341>: T} ×184` is a map: 184 keys such as this one, all with values of one shape;
//! - `…` stands for what was left out; a key that is not a plain word is quoted as JSON;
//! - `ndjson [T] ×100` stands for 100 values, one per line.
//!
//! The first [`SAMPLE_ITEMS`] items of an array are merged, the rest is only counted. Arrays inside items
//! that were not merged are not part of a range such as `×0-3`.

mod fit;
mod read;
mod shape;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::index::ItemIndex;
use crate::scan::Isa;
use crate::survey::BYTE_ORDER_MARK;
use read::KnownItems;

/// Items of an array, or values of NDJSON, that are merged. The rest is only counted.
pub const SAMPLE_ITEMS: u64 = 100;

/// Smallest budget in bytes, which fits the coarsest outline of any document.
pub const MIN_BYTES: usize = 8;

/// Returns the shape of a JSON document or of NDJSON, in at most `max_bytes`.
///
/// Keys are revealed level by level, and in turns among siblings. A larger budget never shows less.
pub fn outline(data: &[u8], max_bytes: usize) -> Result<String> {
    outline_with(Isa::detect(), data, max_bytes, None)
}

/// Returns the shape of a document of which only the first items are known: the array or object at byte
/// `items_start` has `item_count` items.
pub fn outline_sample(data: &[u8], max_bytes: usize, items_start: u64, item_count: u64) -> Result<String> {
    let known = KnownItems { start: usize::try_from(items_start).ok(), count: item_count, end: None };
    outline_with(Isa::detect(), data, max_bytes, Some(known))
}

/// Returns the shape of a valid document, like [`outline`], without reading the items that it only counts.
///
/// `items` is the index of `data`, which may start with a byte order mark.
pub fn outline_indexed(data: &[u8], max_bytes: usize, items: &ItemIndex) -> Result<String> {
    outline_indexed_with(Isa::detect(), data, max_bytes, items)
}

fn outline_indexed_with(isa: Isa, data: &[u8], max_bytes: usize, items: &ItemIndex) -> Result<String> {
    let document = data.strip_prefix(BYTE_ORDER_MARK).unwrap_or(data);
    let mark = data.len() - document.len();
    let locate = |offset: u64| usize::try_from(offset).ok()?.checked_sub(mark);
    let start = if items.is_container() { locate(items.start()) } else { None };
    let known = KnownItems { start, count: items.len(), end: locate(items.end()) };
    outline_with(isa, document, max_bytes, (start.is_some() || items.is_ndjson()).then_some(known))
}

fn outline_with(isa: Isa, data: &[u8], max_bytes: usize, known: Option<KnownItems>) -> Result<String> {
    if max_bytes < MIN_BYTES {
        return Err(Error::argument(format!(
            "an outline needs at least {MIN_BYTES} bytes, e.g. max_bytes=512"
        )));
    }
    let mut document = read::read(isa, data, known)?;
    document.shape.find_maps();
    Ok(fit::fit(&document, max_bytes))
}
