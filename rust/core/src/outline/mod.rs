//! The shape of a document in one line: what a reader needs to choose a path.
//!
//! `{statuses: [{id: int, text: str, place?: {…}}] ×100, count: int}`
//!
//! - `int`, `float`, `str`, `bool`, `null`; alternatives are joined by `|`; integers among floats are floats;
//! - `key?` is missing from some of the objects merged here;
//! - `[T] ×100` is an array of 100, `×0-3` one of none to three, wherever it was seen;
//! - `{<138586341>: T} ×184` is a map: 184 keys such as this one, all with values of one shape;
//! - `…` is what was left out; a key that is no plain word is quoted as JSON;
//! - `ndjson [T] ×100` are 100 values on lines of their own.
//!
//! The first [`SAMPLE`] items of an array are merged. It is counted to its end, but arrays inside of items
//! that were not merged have no part in a range such as `×0-3`.

mod fit;
mod read;
mod shape;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::scan::Isa;

/// How many items of an array, or values of NDJSON, are merged; the rest is counted.
pub const SAMPLE: u64 = 100;

/// The smallest budget: the coarsest outline of anything fits.
pub const MIN_BYTES: usize = 8;

/// The shape of a JSON document or of NDJSON, in at most `max_bytes`.
///
/// Keys are revealed level by level, and in turns among siblings. A larger budget never shows less.
pub fn outline(data: &[u8], max_bytes: usize) -> Result<String> {
    outline_with(Isa::detect(), data, max_bytes)
}

fn outline_with(isa: Isa, data: &[u8], max_bytes: usize) -> Result<String> {
    if max_bytes < MIN_BYTES {
        return Err(Error::argument(format!(
            "an outline needs at least {MIN_BYTES} bytes, e.g. max_bytes=512"
        )));
    }
    let mut document = read::read(isa, data)?;
    document.shape.find_maps();
    Ok(fit::fit(&document, max_bytes))
}
