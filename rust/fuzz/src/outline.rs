//! Outlines: checked to fit the budget, to be one line, and to show the length of an array as its count.

use forebay_core::outline;
use serde_json::Value;

use crate::{Input, oracle};

/// Smallest budget of an outline.
const MIN_BYTES: usize = 8;

pub fn compare(input: Input<'_>) {
    let data = input.data;
    let max_bytes = MIN_BYTES + input.budget() as usize;
    match outline(data, max_bytes) {
        Ok(shape) => {
            assert!(shape.len() <= max_bytes, "{} bytes within {max_bytes}", shape.len());
            assert!(!shape.contains(char::is_control), "{shape:?} is not a line");
            assert_eq!(outline(data, max_bytes), Ok(shape));
        }
        Err(error) => assert!(!oracle::is_json(data), "{error} for valid JSON"),
    }
    if let Some(Value::Array(items)) = oracle::parse(data) {
        let shape = outline(data, usize::MAX).expect("valid JSON");
        let end = if items.is_empty() { "[]".to_owned() } else { format!("×{}", items.len()) };
        assert!(shape.ends_with(&end), "{shape} of {} items", items.len());
    }
}
