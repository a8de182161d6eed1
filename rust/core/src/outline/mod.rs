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
use crate::scan::Isa;

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
    outline_with(Isa::detect(), data, max_bytes, Some((items_start, item_count)))
}

fn outline_with(isa: Isa, data: &[u8], max_bytes: usize, known: Option<(u64, u64)>) -> Result<String> {
    if max_bytes < MIN_BYTES {
        return Err(Error::argument(format!(
            "an outline needs at least {MIN_BYTES} bytes, e.g. max_bytes=512"
        )));
    }
    let mut document = read::read(isa, data, known)?;
    document.shape.find_maps();
    Ok(fit::fit(&document, max_bytes))
}
