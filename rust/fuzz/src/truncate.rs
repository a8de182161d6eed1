//! Truncating: checked to be valid JSON within the budget and, where nothing is left out, to equal the
//! document.

use forebay_core::truncate::{Limits, truncate};

use serde_json::Value;

use crate::{Input, oracle};

/// Written in place of a value that is too deep, and the smallest budget of an answer.
const MARKER: &str = r#""[truncated]""#;
const MIN_BYTES: usize = MARKER.len();

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
    let Some(value) = oracle::parse(data) else { return };
    if depth(&value) <= 60 {
        check_whole(data, &value);
    }
    check_depth(&value, limits.max_depth);
}

/// Limits that only the depth exceeds.
fn up_to(max_depth: usize) -> Limits {
    Limits {
        max_bytes: usize::MAX,
        max_array_items: usize::MAX,
        max_string_chars: usize::MAX,
        max_depth,
        max_object_keys: usize::MAX,
    }
}

/// Checks that limits that nothing exceeds leave nothing out.
fn check_whole(data: &[u8], value: &Value) {
    let limits = Limits { max_bytes: 2 * data.len() + MIN_BYTES, ..up_to(64) };
    let answer = truncate(data, &limits).expect("it fits");
    assert_eq!(oracle::parse(&answer).as_ref(), Some(value));
}

/// Checks which values are too deep, of the document as serde_json writes it.
fn check_depth(value: &Value, max_depth: usize) {
    let answer = truncate(value.to_string().as_bytes(), &up_to(max_depth)).expect("there is no budget");
    let mut expected = value.clone();
    hide_below(&mut expected, max_depth);
    // As text, because serde_json does not read every float exactly as it was written.
    assert_eq!(String::from_utf8_lossy(&answer), expected.to_string());
}

fn hide_below(value: &mut Value, levels: usize) {
    let hide = |child: &mut Value| match levels.checked_sub(1) {
        Some(levels) => hide_below(child, levels),
        None if child.to_string().len() <= MARKER.len() => {}
        None => *child = MARKER.trim_matches('"').into(),
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::Object(members) => members.values_mut().for_each(hide),
        _ => {}
    }
}

/// serde_json allows 128 levels, so this may recurse.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
