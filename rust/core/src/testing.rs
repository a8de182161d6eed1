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

/// Documents of objects, arrays and scalars in about the numbers that make an object a map of like values.
pub(crate) fn maps() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        (0..1000).prop_map(Value::from),
        text().prop_map(Value::from),
        prop::collection::vec(any::<bool>(), 0..40).prop_map(Value::from),
        prop::collection::vec(("[a-d]", any::<u8>()), 0..4).prop_map(object),
    ];
    leaf.prop_recursive(7, 300, 12, |inner| {
        let key = || prop_oneof![4 => "[a-z]{1,3}", 1 => text()];
        prop_oneof![
            2 => prop::collection::vec((key(), inner.clone()), 0..4).prop_map(object),
            3 => prop::collection::vec((key(), prop::collection::vec(("[a-f]", inner.clone()), 0..4).prop_map(object)), 6..12)
                .prop_map(object),
            1 => (prop::collection::vec(key(), 7..12), inner.clone())
                .prop_map(|(keys, value)| object(keys.into_iter().map(|key| (key, value.clone())))),
            1 => (prop::collection::vec(key(), 28..36), prop::collection::vec(inner.clone(), 0..3))
                .prop_map(|(keys, value)| object(keys.into_iter().map(|key| (key, value.clone())))),
            1 => (90..110_usize, prop_oneof![Just(Value::from(1)), Just(Value::from("x"))], inner)
                .prop_map(|(len, value, last)| object((0..len).map(|i| (format!("k{i}"), value.clone())).chain([("last".to_owned(), last)]))),
        ]
    })
}

fn object<V: Into<Value>>(members: impl IntoIterator<Item = (String, V)>) -> Value {
    Value::Object(members.into_iter().map(|(key, value)| (key, value.into())).collect())
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
