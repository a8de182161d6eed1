//! Strategies for property tests.

use proptest::prelude::*;
use serde_json::Value;

/// Text that is hard to cut: escapes, multi-byte characters, surrogate pairs, joined emoji.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z ]{1,8}",
        1 => Just("\"".to_owned()),
        1 => Just("\\".to_owned()),
        1 => Just("\n\t\u{1}".to_owned()),
        1 => Just("é漢字".to_owned()),
        1 => Just("😀👩‍👩‍👧‍👦🇩🇪🇫🇷".to_owned()),
        1 => Just("e\u{301}\u{302}".to_owned()),
        1 => Just("[{,:}]".to_owned()),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// Any JSON value, nested a few levels.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 120, 16, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..16).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}
