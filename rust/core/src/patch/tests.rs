use super::*;
use crate::error::ErrorKind;
use proptest::prelude::*;
use serde_json::{Value, json};

const NO_LIMIT: u64 = 1 << 30;

fn run(data: &[u8], operations: &[u8], max_bytes: u64) -> Result<Vec<u8>> {
    let results: Vec<_> =
        Isa::available().into_iter().map(|isa| patch_with(isa, data, operations, max_bytes)).collect();
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    patch(data, operations, max_bytes)
}

fn apply(data: &str, operations: &str) -> String {
    String::from_utf8(run(data.as_bytes(), operations.as_bytes(), NO_LIMIT).unwrap()).unwrap()
}

/// Returns the message of a failed operation.
fn failure(data: &str, operations: &str) -> String {
    let error = run(data.as_bytes(), operations.as_bytes(), NO_LIMIT).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::PatchFailed(_)), "{error:?}");
    error.to_string()
}

/// Returns the message of a malformed patch.
fn malformed(operations: &str) -> String {
    let error = run(b"{}", operations.as_bytes(), NO_LIMIT).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::InvalidArgument(_)), "{error:?}");
    error.to_string()
}

#[test]
fn applies_the_examples_of_the_rfc() {
    for (data, operations, expected) in [
        // A.1 to A.7
        (r#"{"foo":"bar"}"#, r#"[{"op":"add","path":"/baz","value":"qux"}]"#, r#"{"foo":"bar","baz":"qux"}"#),
        (
            r#"{"foo":["bar","baz"]}"#,
            r#"[{"op":"add","path":"/foo/1","value":"qux"}]"#,
            r#"{"foo":["bar","qux","baz"]}"#,
        ),
        (r#"{"baz":"qux","foo":"bar"}"#, r#"[{"op":"remove","path":"/baz"}]"#, r#"{"foo":"bar"}"#),
        (
            r#"{"foo":["bar","qux","baz"]}"#,
            r#"[{"op":"remove","path":"/foo/1"}]"#,
            r#"{"foo":["bar","baz"]}"#,
        ),
        (
            r#"{"baz":"qux","foo":"bar"}"#,
            r#"[{"op":"replace","path":"/baz","value":"boo"}]"#,
            r#"{"baz":"boo","foo":"bar"}"#,
        ),
        (
            r#"{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}"#,
            r#"[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]"#,
            r#"{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}"#,
        ),
        (
            r#"{"foo":["all","grass","cows","eat"]}"#,
            r#"[{"op":"move","from":"/foo/1","path":"/foo/3"}]"#,
            r#"{"foo":["all","cows","eat","grass"]}"#,
        ),
        // A.8, A.10, A.11
        (
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
            r#"[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]"#,
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
        ),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/child","value":{"grandchild":{}}}]"#,
            r#"{"foo":"bar","child":{"grandchild":{}}}"#,
        ),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/baz","value":"qux","xyz":123}]"#,
            r#"{"foo":"bar","baz":"qux"}"#,
        ),
        // A.14, A.16
        (r#"{"/":9,"~1":10}"#, r#"[{"op":"test","path":"/~01","value":10}]"#, r#"{"/":9,"~1":10}"#),
        (
            r#"{"foo":["bar"]}"#,
            r#"[{"op":"add","path":"/foo/-","value":["abc","def"]}]"#,
            r#"{"foo":["bar",["abc","def"]]}"#,
        ),
    ] {
        assert_eq!(apply(data, operations), expected);
    }
    // A.9, A.12, A.15: operations that fail; A.13: a patch that is not valid
    assert!(
        failure(r#"{"baz":"qux"}"#, r#"[{"op":"test","path":"/baz","value":"bar"}]"#).contains("\"qux\"")
    );
    failure(r#"{"foo":"bar"}"#, r#"[{"op":"add","path":"/baz/bat","value":"qux"}]"#);
    failure(r#"{"/":9,"~1":10}"#, r#"[{"op":"test","path":"/~01","value":"10"}]"#);
    malformed(r#"[{"op":"add","path":"/baz","value":"qux","op":"remove"}]"#);
}

#[test]
fn keeps_every_other_byte() {
    let data = " {\"n\": 1.50e+3,\r\n\t\"\\u0061\" :[ 1 , 2 ],  \"z\":{},\"big\":12345678901234567890123} \n";
    assert_eq!(
        apply(data, r#"[{"op":"replace","path":"/a/1","value": -0.0 }]"#),
        " {\"n\": 1.50e+3,\r\n\t\"\\u0061\" :[ 1 , -0.0 ],  \"z\":{},\"big\":12345678901234567890123} \n"
    );
    assert_eq!(
        apply(data, r#"[{"op":"copy","from":"/big","path":"/z/x\"y"},{"op":"remove","path":"/big"}]"#),
        " {\"n\": 1.50e+3,\r\n\t\"\\u0061\" :[ 1 , 2 ],  \"z\":{\"x\\\"y\": 12345678901234567890123}} \n"
    );
    assert_eq!(apply(data, "[]"), data);
    assert_eq!(apply(" 1 ", r#"[{"op":"add","path":"","value":[ ]}]"#), " [ ] ");
}

#[test]
fn new_members_and_items_are_spaced_like_their_neighbours() {
    let data = "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}";
    assert_eq!(
        apply(
            data,
            r#"[{"op":"add","path":"/a/0","value":0},{"op":"add","path":"/a/-","value":3},{"op":"add","path":"/c","value":4}]"#
        ),
        "{\n  \"a\": [\n    0,\n    1,\n    2,\n    3\n  ],\n  \"b\": {},\n  \"c\": 4\n}"
    );
    for (data, path, expected) in [
        ("[ 1 , 2 , 3 ]", "/0", "[ 2 , 3 ]"),
        ("[ 1 , 2 , 3 ]", "/1", "[ 1 , 3 ]"),
        ("[ 1 , 2 , 3 ]", "/2", "[ 1 , 2 ]"),
        ("[ 1 ]", "/0", "[]"),
        ("{ \"a\" : 1 , \"b\" : 2 }", "/a", "{ \"b\" : 2 }"),
        ("{ \"a\" : 1 , \"b\" : 2 }", "/b", "{ \"a\" : 1 }"),
        ("{ \"a\" : 1 }", "/a", "{}"),
    ] {
        assert_eq!(apply(data, &format!(r#"[{{"op":"remove","path":"{path}"}}]"#)), expected);
    }
}

#[test]
fn of_equal_keys_the_first_is_read_and_the_others_are_removed() {
    let data = r#"{"a": 1, "b": 2, "\u0061": 3, "c": 4, "a": 5}"#;
    assert_eq!(apply(data, r#"[{"op":"test","path":"/a","value":1}]"#), data);
    for op in ["add", "replace"] {
        let operations = format!(r#"[{{"op":"{op}","path":"/a","value":9}}]"#);
        assert_eq!(apply(data, &operations), r#"{"a": 9, "b": 2, "c": 4}"#);
    }
    assert_eq!(apply(data, r#"[{"op":"remove","path":"/a"}]"#), r#"{"b": 2, "c": 4}"#);
    assert_eq!(apply(data, r#"[{"op":"move","from":"/a","path":"/d"}]"#), r#"{"b": 2, "c": 4, "d": 1}"#);
    assert_eq!(apply(r#"{ "a": 1, "a": 2 }"#, r#"[{"op":"remove","path":"/a"}]"#), "{}");
    assert_eq!(
        apply(r#"{"b": {"a": 1, "a": 2}}"#, r#"[{"op":"test","path":"/b","value":{"a":1}}]"#).len(),
        23
    );
}

#[test]
fn test_compares_what_values_mean() {
    for (left, right) in [
        ("1", "1.0"),
        ("100", "1e2"),
        ("-0", "0.00"),
        ("1.50", "15E-1"),
        ("12345678901234567890123", "1.2345678901234567890123e22"),
        ("1e99999999999999999999", "1e99999999999999999999"),
        (r#""é\/\ud83d\ude00""#, r#""\u00e9/😀""#),
        (r#"{"a":1,"b":[2]}"#, r#"{ "b":[2.0] , "\u0061":1 }"#),
        ("[]", "[ ]"),
        ("null", "null"),
    ] {
        for (left, right) in [(left, right), (right, left)] {
            apply(&format!("[{left}]"), &format!(r#"[{{"op":"test","path":"/0","value":{right}}}]"#));
        }
    }
    for (left, right) in [
        ("1", "-1"),
        ("9007199254740993", "9007199254740992"),
        ("1e400", "1e401"),
        ("1", "\"1\""),
        ("0", "false"),
        ("0", "null"),
        ("[1]", "[1,1]"),
        ("[]", "{}"),
        (r#"{"a":1}"#, r#"{"a":1,"b":1}"#),
        (r#"{"a":1}"#, r#"{"b":1}"#),
        (r#""\ud800""#, r#""\ud801""#),
        ("true", "false"),
    ] {
        for (left, right) in [(left, right), (right, left)] {
            failure(&format!("[{left}]"), &format!(r#"[{{"op":"test","path":"/0","value":{right}}}]"#));
        }
    }
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let expect = |value: &str| format!(r#"[{{"op":"test","path":"","value":{value}}}]"#);
    assert!(failure(&nested(200), &expect(&nested(201))).contains("128 levels"));
    apply(&nested(128), &expect(&format!(" {}", nested(128).replace("[]", "[ ]"))));
}

#[test]
fn failures_name_the_operation_and_the_next_step() {
    let data = r#"{"a": [1, 2], "s": "x"}"#;
    for (operation, step) in [
        (r#"{"op":"replace","path":"/b","value":1}"#, "nothing is at \"/b\"; outline() shows"),
        (r#"{"op":"replace","path":"/a/-","value":1}"#, "nothing is at \"/a/-\""),
        (r#"{"op":"remove","path":"/a/2"}"#, "nothing is at \"/a/2\""),
        (r#"{"op":"remove","path":"/s/0"}"#, "nothing is at \"/s/0\""),
        (r#"{"op":"remove","path":""}"#, "replace it"),
        (r#"{"op":"add","path":"/a/3","value":1}"#, "has 2 items; add at 0 to 2"),
        (r#"{"op":"add","path":"/a/01","value":1}"#, "has 2 items"),
        (r#"{"op":"add","path":"/a/x","value":1}"#, "has 2 items"),
        (r#"{"op":"add","path":"/x/y","value":1}"#, "add that first"),
        (r#"{"op":"add","path":"/s/y","value":1}"#, "no object or array"),
        (r#"{"op":"copy","from":"/b","path":"/c"}"#, "nothing is at \"/b\""),
        (r#"{"op":"move","from":"/b","path":"/c"}"#, "nothing is at \"/b\""),
        (r#"{"op":"move","from":"/a","path":"/a/0"}"#, "into itself"),
        (r#"{"op":"move","from":"/a/0","path":"/a/2"}"#, "has 1 items"),
        (r#"{"op":"test","path":"/a","value":[1]}"#, "the value is [1, 2]"),
        (r#"{"op":"test","path":"/b","value":null}"#, "nothing is at"),
    ] {
        let operations = format!(r#"[{{"op":"add","path":"/n","value":0}},{operation}]"#);
        let message = failure(data, &operations);
        assert!(message.starts_with("patch[1] (") && message.contains(step), "{message}");
    }
    let long = format!("\"{}\"", "é".repeat(1000));
    assert!(failure(&long, r#"[{"op":"test","path":"","value":1}]"#).len() < 300);
}

#[test]
fn malformed_patches_are_named() {
    for (operations, expected) in [
        ("", "a list of operations"),
        ("{}", "a list of operations"),
        ("[]\n[]", "a list of operations"),
        ("[1]", "patch[0] is no operation"),
        ("[{}]", "no known \"op\"; it is add, remove"),
        (r#"[{"op":"delete","path":"/a"}]"#, "no known \"op\""),
        (r#"[{"op":"remove"}]"#, "needs \"path\""),
        (r#"[{"op":"remove","path":1}]"#, "needs \"path\""),
        (r#"[{"op":"remove","path":"a"}]"#, "not a JSON Pointer"),
        (r#"[{"op":"remove","path":"/~2"}]"#, "not a JSON Pointer"),
        (r#"[{"op":"remove","path":"/\ud800"}]"#, "needs \"path\""),
        (r#"[{"op":"add","path":"/a"}]"#, "needs \"value\""),
        (r#"[{"op":"copy","path":"/a"}]"#, "needs \"from\""),
        (r#"[{"op":"add","path":"/a","value":1,"path":"/b"}]"#, "twice"),
    ] {
        let message = malformed(operations);
        assert!(message.contains(expected), "{operations}: {message}");
    }
    let many = |count| format!("[{}]", vec![r#"{"op":"test","path":"","value":{}}"#; count].join(","));
    assert_eq!(apply("{}", &many(1000)), "{}");
    assert!(malformed(&many(1001)).contains("1000 operations"));
}

#[test]
fn the_document_must_be_one_json_value() {
    let replace = br#"[{"op":"replace","path":"/0","value":1}]"#;
    for data in ["", " ", "x", "[1", "[1] 2", "[\"\u{1}\"]"] {
        let error = run(data.as_bytes(), replace, NO_LIMIT).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::InvalidJson(_)), "{error:?}");
    }
    let error = run(b"[1]\n[2]", replace, NO_LIMIT).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::InvalidArgument(_)), "{error:?}");
}

#[test]
fn growth_is_bounded() {
    let copies = vec![r#"{"op":"copy","from":"","path":"/-"}"#; 1000].join(",");
    let error = run(b"[0]", format!("[{copies}]").as_bytes(), 1 << 16).unwrap_err();
    assert!(error.to_string().contains("more than 65536"), "{error}");
    assert_eq!(run(b"[1,2]", br#"[{"op":"add","path":"/-","value":3}]"#, 7).unwrap(), b"[1,2,3]");
    assert!(run(b"[1,2]", br#"[{"op":"add","path":"/-","value":3}]"#, 6).is_err());
}

#[test]
fn many_equal_keys_cost_one_pass() {
    let data = format!("{{{}}}", vec!["\"a\":1"; 200_000].join(","));
    assert_eq!(apply(&data, r#"[{"op":"remove","path":"/a"}]"#), "{}");
    assert_eq!(apply(&data, r#"[{"op":"add","path":"/a","value":2}]"#), r#"{"a":2}"#);
    let other =
        format!("{{{}}}", (0..50_000).rev().map(|n| format!("\"{n}\":1")).collect::<Vec<_>>().join(","));
    let data = format!("{{{}}}", (0..50_000).map(|n| format!("\"{n}\":1")).collect::<Vec<_>>().join(","));
    apply(&data, &format!(r#"[{{"op":"test","path":"","value":{other}}}]"#));
}

/// Documents with few distinct keys, so that pointers often lead somewhere.
fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0..3).prop_map(Value::from),
        Just(json!("a~/é\"")),
        Just(Value::Null),
        Just(json!(true))
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[ab/\"]", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn pointers() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop_oneof![Just("/a"), Just("/b"), Just("/~1"), Just("/\""), Just("/0"), Just("/1"), Just("/-")],
        0..4,
    )
    .prop_map(|tokens| tokens.concat())
}

fn operations() -> impl Strategy<Value = Value> {
    let operation =
        (0..6, pointers(), pointers(), documents()).prop_map(|(kind, path, from, value)| match kind {
            0 => json!({"op": "add", "path": path, "value": value}),
            1 => json!({"op": "remove", "path": path}),
            2 => json!({"op": "replace", "path": path, "value": value}),
            3 => json!({"op": "move", "from": from, "path": path}),
            4 => json!({"op": "copy", "from": from, "path": path}),
            _ => json!({"op": "test", "path": path, "value": value}),
        });
    prop::collection::vec(operation, 0..6).prop_map(Value::from)
}

/// Applies a patch to a parsed document; `None` if it fails.
fn naive(document: &Value, operations: &Value) -> Option<Value> {
    let mut document = document.clone();
    for operation in operations.as_array()? {
        // The crate refuses to move the document to where it is.
        if operation["op"] == "move" && operation["from"] == "" && operation["path"] == "" {
            continue;
        }
        let patch: json_patch::Patch = serde_json::from_value(json!([operation])).unwrap();
        json_patch::patch(&mut document, &patch).ok()?;
    }
    Some(document)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn matches_a_patch_of_the_parsed_document(document in documents(), operations in operations()) {
        let expected = naive(&document, &operations);
        let patch = operations.to_string();
        for data in [serde_json::to_vec(&document).unwrap(), serde_json::to_vec_pretty(&document).unwrap()] {
            let patched = run(&data, patch.as_bytes(), NO_LIMIT).ok();
            let parsed = patched.map(|bytes| serde_json::from_slice::<Value>(&bytes).unwrap());
            prop_assert_eq!(&parsed, &expected);
        }
    }

    #[test]
    fn a_pretty_document_stays_pretty(rows in prop::collection::vec(prop::collection::btree_map("[a-f]", 0..9, 1..4), 3..5)) {
        let document = json!({"a": rows, "b": 1});
        let patch = r#"[{"op":"add","path":"/a/0/x","value":1},{"op":"remove","path":"/a/1"},
            {"op":"copy","from":"/b","path":"/a/0/y"},{"op":"move","from":"/a/0","path":"/a/-"}]"#;
        let patched = apply(&serde_json::to_string_pretty(&document).unwrap(), patch);
        let value: Value = serde_json::from_str(&patched).unwrap();
        prop_assert_eq!(serde_json::to_string_pretty(&value).unwrap(), patched);
    }

    #[test]
    fn equality_matches_the_parsed_values(left in crate::testing::json(), right in crate::testing::json()) {
        let texts = [&left, &right].map(|value| (value.to_string(), serde_json::to_string_pretty(value).unwrap()));
        let [(left_text, left_pretty), (right_text, _)] = &texts;
        let same = |left: &str, right: &str| equal::equal(Isa::detect(), left.as_bytes(), right.as_bytes()).unwrap();
        prop_assert_eq!(same(left_text, left_pretty), Some(true));
        prop_assert_eq!(same(left_pretty, right_text), Some(left == right));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        document in documents(), operations in operations(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let (data, patch) = (document.to_string().into_bytes(), operations.to_string().into_bytes());
        for (data, patch) in [(damage(&data, at, byte), patch.clone()), (data, damage(&patch, at, byte))] {
            let _ = run(&data, &patch, NO_LIMIT);
            let _ = run(&data[..at.index(data.len())], &patch, NO_LIMIT);
        }
    }
}

fn damage(bytes: &[u8], at: prop::sample::Index, byte: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = at.index(bytes.len());
    bytes[at] = byte;
    bytes
}
