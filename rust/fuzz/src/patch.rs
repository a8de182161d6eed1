//! Patches: compared with patching the values of serde_json.

use forebay_core::{ErrorKind, patch};
use serde_json::{Value, json};

use crate::{Input, oracle};

/// Pointers into the generated documents, with all kinds of tokens.
const POINTERS: [&str; 16] = [
    "", "/0", "/1", "/-", "/id", "/name", "/a", "/items", "/items/0", "/items/-", "/0/id", "/id/a", "/a/0",
    "/é", "/\\n", "/[{,:}]",
];
const MAX_BYTES: u64 = 1 << 20;

pub fn compare(Input { knobs, data }: Input<'_>) {
    let pointer = |knob: u8| POINTERS[usize::from(knob % 16)];
    let (path, from) = (pointer(knobs[1]), pointer(knobs[2]));
    let first = operation(knobs[0], path, from, &json!({"id": ["a"], "a": null}));
    let second = operation(knobs[0] / 8, from, path, &json!(["a"]));
    let operations = json!([first, second]);
    // Any bytes may be a patch.
    let _ = patch(br#"{"id": 1, "a": [2]}"#, data, MAX_BYTES);
    let patched = patch(data, operations.to_string().as_bytes(), MAX_BYTES);
    if let Ok(patched) = &patched {
        assert!(oracle::is_json(patched), "not JSON: {}", String::from_utf8_lossy(patched));
    }
    let Some(document) = oracle::parse(data) else {
        let is_refused = matches!(&patched, Err(error) if !matches!(error.kind, ErrorKind::PatchFailed(_)));
        assert!(is_refused || oracle::is_json(data), "{patched:?} for invalid JSON");
        return;
    };
    let expected = naive(document, &operations);
    assert_eq!(patched.is_ok(), expected.is_some(), "{operations}: {patched:?}");
    if let Ok(patched) = patched {
        assert_eq!(oracle::parse(&patched), expected);
    }
}

fn operation(knob: u8, path: &str, from: &str, value: &Value) -> Value {
    match knob % 6 {
        0 => json!({"op": "add", "path": path, "value": value}),
        1 => json!({"op": "remove", "path": path}),
        2 => json!({"op": "replace", "path": path, "value": value}),
        3 => json!({"op": "move", "from": from, "path": path}),
        4 => json!({"op": "copy", "from": from, "path": path}),
        _ => json!({"op": "test", "path": path, "value": value}),
    }
}

fn naive(mut document: Value, operations: &Value) -> Option<Value> {
    for operation in operations.as_array()? {
        // The crate refuses to move the document to where it is.
        if operation["op"] == "move" && operation["from"] == "" && operation["path"] == "" {
            continue;
        }
        let patch: json_patch::Patch = serde_json::from_value(json!([operation])).expect("a patch");
        json_patch::patch(&mut document, &patch).ok()?;
    }
    Some(document)
}
