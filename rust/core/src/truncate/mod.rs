//! Overview of a JSON document that fits a budget.
//!
//! One pass records what may be shown, a canonical order says which details come first, and the answer is as
//! much of that order as fits: `walk`, `order` and `render`, over one `tree`.

mod horizon;
mod order;
mod render;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod walk;

pub(crate) use render::push_minified;

use crate::error::{Error, Result};
use crate::scan::Isa;

/// Largest `max_depth` that is allowed, since what is shown is visited by recursion.
const MAX_DEPTH: usize = 64;

/// Limits of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Total size in bytes.
    pub max_bytes: usize,
    /// Items per array.
    pub max_array_items: usize,
    /// Code points per string, without the dots after them. Keys and numbers of up to 64 characters are never
    /// cut.
    pub max_string_chars: usize,
    /// Containers around a value; at most 64.
    pub max_depth: usize,
    /// Members per object.
    pub max_object_keys: usize,
}

impl Limits {
    /// Returns limits of which only the total size applies.
    pub(crate) fn of_bytes(max_bytes: usize) -> Self {
        let unlimited = usize::MAX;
        Self {
            max_bytes,
            max_array_items: unlimited,
            max_string_chars: unlimited,
            max_depth: MAX_DEPTH,
            max_object_keys: unlimited,
        }
    }
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

/// Returns an overview of `data` within `limits`: valid JSON without white space, never longer than
/// `max_bytes`.
///
/// Arrays with items left out become `{"items":[…],"totalCount":n,"showing":k}`, cut strings end in `...`,
/// and a value too deep becomes `"[truncated]"` unless it is as short as that. Members left out of an object are counted by a last member
/// whose key is `...`, or more dots if another key is dots. Of keys that are cut to the same text all but the
/// first are left out, so that keys stay distinct. NDJSON counts as an array of its values.
///
/// A larger budget never shows less. What is shown is validated; what is left out is not.
///
/// # Errors
/// `InvalidJson` if the structure is broken or something shown is not valid; `InvalidArgument` if no answer
/// is as small as `max_bytes` (13 always suffice) or if `max_depth` is more than 64.
pub fn truncate(data: &[u8], limits: &Limits) -> Result<Vec<u8>> {
    if limits.max_depth > MAX_DEPTH {
        return Err(Error::argument(format!(
            "max_depth is {}; at most {MAX_DEPTH} is possible",
            limits.max_depth
        )));
    }
    // At least as much as the smallest answer takes, so that the error for a smaller budget can name it.
    let reach = limits.max_bytes.max(tree::HIDDEN.len());
    answer(data, limits, reach, Isa::detect())
}

/// Returns the overview. `reach` is the budget that bounds what is recorded: `max_bytes` or more.
fn answer(data: &[u8], limits: &Limits, reach: usize, isa: Isa) -> Result<Vec<u8>> {
    let mut tree = walk::walk(data, limits, reach, isa)?;
    Ok(match order::choose(&mut tree, data, limits)? {
        Some(size) => render::render(&tree, data, size),
        None => tree::HIDDEN.to_vec(),
    })
}
