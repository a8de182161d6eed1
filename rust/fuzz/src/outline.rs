//! Outlines, against their promises: within the budget, one line, and the count of an array is its length.

use forebay_core::outline;
use serde_json::Value;

use crate::{Input, twin};

/// No payload needs more for its coarsest outline.
const LEAST: usize = 8;

pub fn compare(input: Input<'_>) {
    let data = input.data;
    let max_bytes = LEAST + input.budget() as usize;
    match outline(data, max_bytes) {
        Ok(shape) => {
            assert!(shape.len() <= max_bytes, "{} bytes within {max_bytes}", shape.len());
            assert!(!shape.contains(char::is_control), "{shape:?} is not a line");
            assert_eq!(outline(data, max_bytes), Ok(shape));
        }
        Err(error) => assert!(!twin::is_json(data), "{error} for valid JSON"),
    }
    if let Some(Value::Array(items)) = twin::parse(data) {
        let shape = outline(data, usize::MAX).expect("valid JSON");
        let end = if items.is_empty() { "[]".to_owned() } else { format!("×{}", items.len()) };
        assert!(shape.ends_with(&end), "{shape} of {} items", items.len());
    }
}
