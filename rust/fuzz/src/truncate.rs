//! Truncating: checked to be valid JSON within the budget and, where nothing is left out, to equal the
//! document.

use forebay_core::truncate::{Limits, truncate};

use crate::{Input, oracle};

/// Smallest budget of an answer.
const MIN_BYTES: usize = 13;

pub fn compare(input: Input<'_>) {
    let Input { knobs, data } = input;
    let limits = Limits {
        max_bytes: MIN_BYTES + input.budget() as usize,
        max_array_items: usize::from(knobs[2] % 16),
        max_string_chars: usize::from(knobs[2] / 16) * 8,
        max_depth: usize::from(knobs[3] % 8),
        max_object_keys: usize::from(knobs[3] / 8),
    };
    match truncate(data, &limits) {
        Ok(answer) => {
            assert!(answer.len() <= limits.max_bytes, "{} bytes within {limits:?}", answer.len());
            assert!(oracle::is_json(&answer), "not JSON: {}", String::from_utf8_lossy(&answer));
        }
        Err(error) => assert!(!oracle::is_json(data), "{error} for valid JSON"),
    }
    check_whole(data);
}

/// Checks that limits that nothing exceeds leave nothing out.
fn check_whole(data: &[u8]) {
    let Some(value) = oracle::parse(data) else { return };
    if depth(&value) > 60 {
        return;
    }
    let limits = Limits {
        max_bytes: 2 * data.len() + MIN_BYTES,
        max_array_items: usize::MAX,
        max_string_chars: usize::MAX,
        max_depth: 64,
        max_object_keys: usize::MAX,
    };
    let answer = truncate(data, &limits).expect("it fits");
    assert_eq!(oracle::parse(&answer), Some(value));
}

/// serde_json allows 128 levels, so this may recurse.
fn depth(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        serde_json::Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
