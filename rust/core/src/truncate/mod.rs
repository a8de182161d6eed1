//! An overview of a JSON document that fits into a budget.
//!
//! One pass records what may be shown, a canonical order of details says what is shown first, and the answer
//! is as much of that order as fits: `walk`, `order`, `render`, over one `tree`.

mod horizon;
mod order;
mod render;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod walk;

use crate::error::{Error, Result};
use crate::scan::Isa;

/// The deepest `max_depth`: what is shown is walked by recursion.
const DEEPEST: usize = 64;

/// What an answer may hold at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, all in all.
    pub max_bytes: usize,
    /// Items of one array.
    pub max_array_items: usize,
    /// Code points of one string, the dots behind them not counted. Keys and numbers are never cut below 64.
    pub max_string_chars: usize,
    /// Containers around a value; at most 64.
    pub max_depth: usize,
    /// Members of one object.
    pub max_object_keys: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 10_240,
            max_array_items: 10,
            max_string_chars: 500,
            max_depth: 4,
            max_object_keys: 100,
        }
    }
}

/// The overview of `data` within `limits`: valid JSON without white space, never longer than `max_bytes`.
///
/// Arrays of which something is left out become `{"items":[…],"totalCount":n,"showing":k}`, strings end in
/// `...`, what is too deep is `"[truncated]"`, members left out of an object are counted by a last one whose
/// key is `...` (or more dots, beside a key of dots). Of keys that are cut to the same all but the first are
/// left out, so keys are as distinct as those of the payload. Several values on lines of their own are NDJSON,
/// and count as the items of an array.
///
/// A larger budget never shows less. What is shown was checked; what is left out is trusted.
///
/// # Errors
/// `InvalidJson` where the structure is broken or something shown is not valid; `InvalidArgument` if no
/// answer is as small as `max_bytes` (13 always suffice), or `max_depth` is more than 64.
pub fn truncate(data: &[u8], limits: &Limits) -> Result<Vec<u8>> {
    if limits.max_depth > DEEPEST {
        return Err(Error::argument(format!(
            "max_depth is {}; at most {DEEPEST} is possible",
            limits.max_depth
        )));
    }
    // The smallest answer is known for any payload, so that a budget below it can be told what it needs.
    let reach = limits.max_bytes.max(tree::HIDDEN.len());
    answer(data, limits, reach, Isa::detect())
}

/// `reach` is the budget that what is recorded may be limited to: `max_bytes` or more.
fn answer(data: &[u8], limits: &Limits, reach: usize, isa: Isa) -> Result<Vec<u8>> {
    let mut tree = walk::walk(data, limits, reach, isa)?;
    Ok(match order::choose(&mut tree, data, limits)? {
        Some(size) => render::render(&tree, data, size),
        None => tree::HIDDEN.to_vec(),
    })
}
