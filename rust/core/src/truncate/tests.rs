use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing;

const WHOLE: usize = usize::MAX;

fn unlimited() -> Limits {
    Limits {
        max_bytes: WHOLE,
        max_array_items: WHOLE,
        max_string_chars: WHOLE,
        max_depth: MAX_DEPTH,
        max_object_keys: WHOLE,
    }
}

/// Reference: applies the limits alone to parsed values.
fn naive(value: &Value, depth: usize, limits: &Limits) -> String {
    if depth > limits.max_depth {
        let (whole, marker) = (value.to_string(), r#""[truncated]""#);
        let unbounded = Limits { max_depth: usize::MAX, ..*limits };
        let is_short = whole.len() <= marker.len() && whole == naive(value, depth, &unbounded);
        return if is_short { whole } else { marker.to_owned() };
    }
    let long = limits.max_string_chars.max(64);
    match value {
        Value::Array(items) => {
            let shown: Vec<_> = items.iter().take(limits.max_array_items).collect();
            let list: Vec<_> = shown.iter().map(|item| naive(item, depth + 1, limits)).collect();
            let list = format!("[{}]", list.join(","));
            if shown.len() == items.len() {
                return list;
            }
            format!(r#"{{"items":{list},"totalCount":{},"showing":{}}}"#, items.len(), shown.len())
        }
        Value::Object(members) => {
            let mut shown_keys = HashSet::new();
            let distinct = members.iter().filter(|(key, _)| shown_keys.insert(cut(key, long)));
            let shown: Vec<_> = distinct.take(limits.max_object_keys).collect();
            let mut list: Vec<_> = shown
                .iter()
                .map(|(key, value)| format!("{}:{}", cut(key, long), naive(value, depth + 1, limits)))
                .collect();
            if shown.len() < members.len() {
                let mut marker = "...".to_owned();
                while shown.iter().any(|(key, _)| cut(key, long) >= format!("{marker:?}") && is_dots(key)) {
                    marker.push('.');
                }
                list.push(format!("{marker:?}:{}", members.len() - shown.len()));
            }
            format!("{{{}}}", list.join(","))
        }
        Value::String(text) => cut(text, limits.max_string_chars),
        Value::Number(number) if number.to_string().len() > long => r#""[truncated]""#.to_owned(),
        scalar => scalar.to_string(),
    }
}

fn is_dots(key: &str) -> bool {
    key.chars().all(|char| char == '.')
}

fn cut(text: &str, max: usize) -> String {
    let shown: String = text.chars().take(max).collect();
    let dots = if shown.len() < text.len() { "..." } else { "" };
    Value::from(shown + dots).to_string()
}

/// Whether `big` shows everything that `small` shows, and the counts of both are of the same document.
fn shows_no_less(small: &Value, big: &Value) -> bool {
    let pairwise = |small: &[Value], big: &[Value]| {
        small.len() <= big.len() && small.iter().zip(big).all(|(small, big)| shows_no_less(small, big))
    };
    match (small, big) {
        (Value::String(text), _) if text == "[truncated]" => true,
        (Value::String(small), Value::String(big)) => {
            small == big || small.strip_suffix("...").is_some_and(|prefix| big.starts_with(prefix))
        }
        (Value::Array(small), Value::Array(big)) => small.len() == big.len() && pairwise(small, big),
        (Value::Object(small), Value::Array(big)) => match wrapped(small) {
            Some((items, total)) => total == big.len() && pairwise(items, big),
            None => false,
        },
        (Value::Object(small), Value::Object(big)) => match (wrapped(small), wrapped(big)) {
            (Some((small, total)), Some((big, same))) => total == same && pairwise(small, big),
            (None, None) => {
                let shown =
                    |object: &serde_json::Map<_, _>| object.keys().filter(|key| !is_marker(key)).count();
                let total = |object: &serde_json::Map<_, _>| {
                    let marked = object.iter().find(|(key, _)| is_marker(key));
                    shown(object) + marked.map_or(0, |(_, count)| count.as_u64().unwrap() as usize)
                };
                let mut members = small.iter().filter(|(key, _)| !is_marker(key));
                total(small) == total(big)
                    && members.all(|(key, value)| big.get(key).is_some_and(|big| shows_no_less(value, big)))
            }
            _ => false,
        },
        _ => small == big,
    }
}

fn members(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(members).sum(),
        Value::Object(object) => object.len() + object.values().map(members).sum::<usize>(),
        _ => 0,
    }
}

/// Counts the colons outside strings.
fn colons(json: &str) -> usize {
    let plain = json.replace(r"\\", "").replace(r#"\""#, "");
    plain.split('"').step_by(2).map(|between| between.matches(':').count()).sum()
}

fn is_marker(key: &str) -> bool {
    key.len() >= 3 && is_dots(key)
}

fn wrapped(object: &serde_json::Map<String, Value>) -> Option<(&[Value], usize)> {
    let items = object.get("items")?.as_array()?;
    assert_eq!(object["showing"], json!(items.len()));
    Some((items, object["totalCount"].as_u64()? as usize))
}

fn limits() -> impl Strategy<Value = Limits> {
    let few = || prop_oneof![3 => 0..6_usize, 1 => Just(100)];
    let chars = prop_oneof![0..12_usize, 30..70_usize, Just(500)];
    (few(), chars, 0..7_usize, few()).prop_map(
        |(max_array_items, max_string_chars, max_depth, max_object_keys)| Limits {
            max_bytes: WHOLE,
            max_array_items,
            max_string_chars,
            max_depth,
            max_object_keys,
        },
    )
}

/// Objects whose keys differ around the point where they are cut, or only after it.
fn similar_keys() -> impl Strategy<Value = Value> {
    let key = (prop_oneof![Just("k"), Just("é")], 62..67_usize, "[a.]{0,4}")
        .prop_map(|(start, count, end)| start.repeat(count) + &end);
    prop::collection::vec((key, testing::json()), 0..12)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// Values with long strings, wide containers and deep ones.
fn document() -> impl Strategy<Value = Value> {
    let long = prop::collection::vec(testing::text(), 4..12).prop_map(|pieces| Value::from(pieces.concat()));
    let wide = || prop::collection::vec(testing::json(), 0..20).prop_map(Value::from);
    let records =
        prop::collection::vec((testing::text(), testing::text(), any::<u16>()), 0..15).prop_map(|rows| {
            let rows = rows.iter().map(
                |(name, text, n)| json!({"n": n, "name": name, "tags": [n, text], "text": text.repeat(4)}),
            );
            Value::Array(rows.collect())
        });
    prop_oneof![
        3 => testing::json(),
        1 => wide(),
        1 => similar_keys(),
        2 => (wide(), long, records, testing::json())
            .prop_map(|(wide, long, records, any)| json!({"a": wide, "b": long, "c": records, "d": any})),
    ]
}

fn budgets(whole: usize) -> impl Iterator<Item = usize> {
    // Every budget where they are few, and a step that shares no factor with anything where they are many.
    (0..=whole).step_by(if whole < 1500 { 1 } else { 7 }).chain([whole, whole + 1])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn without_a_budget_the_limits_alone_decide(value in document(), limits in limits()) {
        let data = serde_json::to_vec(&value).unwrap();
        let answer = truncate(&data, &limits).unwrap();
        prop_assert_eq!(String::from_utf8(answer).unwrap(), naive(&value, 0, &limits));
        prop_assert_eq!(truncate(&data, &unlimited()).unwrap(), data);
    }

    #[test]
    fn every_budget_holds_and_a_larger_one_shows_no_less(value in document(), limits in limits()) {
        let data = serde_json::to_vec(&value).unwrap();
        let whole = naive(&value, 0, &limits);
        let mut last: Option<Value> = None;
        for max_bytes in budgets(whole.len()) {
            let answer = match truncate(&data, &Limits { max_bytes, ..limits }) {
                Ok(answer) => answer,
                Err(error) => {
                    prop_assert!(matches!(error.kind, crate::ErrorKind::InvalidArgument(_)));
                    prop_assert!(max_bytes < 13 && last.is_none(), "{}", error);
                    continue;
                }
            };
            prop_assert!(answer.len() <= max_bytes);
            let text = String::from_utf8(answer).unwrap();
            let answer: Value = serde_json::from_str(&text).unwrap();
            // A parser keeps one of equal keys. None is missing, so there are no equal keys.
            prop_assert_eq!(members(&answer), colons(&text), "{}", text);
            if let Some(last) = &last {
                prop_assert!(shows_no_less(last, &answer), "{} bytes: {} then {}", max_bytes, last, answer);
            }
            last = Some(answer);
        }
        prop_assert_eq!(last.unwrap().to_string(), serde_json::from_str::<Value>(&whole).unwrap().to_string());
    }

    /// What the horizon rejects is never part of an answer, and neither the instruction set nor white space
    /// matters.
    #[test]
    fn the_horizon_does_not_change_answers(value in document(), limits in limits(), budget in 13..3000_usize) {
        let data = serde_json::to_vec(&value).unwrap();
        let pretty = serde_json::to_vec_pretty(&value).unwrap();
        let limits = Limits { max_bytes: budget, ..limits };
        let expected = answer(&data, &limits, WHOLE, Isa::detect()).unwrap();
        for isa in Isa::available() {
            prop_assert_eq!(&answer(&data, &limits, budget, isa).unwrap(), &expected);
            prop_assert_eq!(&answer(&pretty, &limits, budget, isa).unwrap(), &expected);
        }
    }

    #[test]
    fn ndjson_is_truncated_like_an_array(
        values in prop::collection::vec(testing::json(), 2..30),
        limits in limits(),
        budget in 13..3000_usize,
    ) {
        let limits = Limits { max_bytes: budget, ..limits };
        let array = serde_json::to_vec(&values).unwrap();
        let lines: Vec<_> = values.iter().map(Value::to_string).collect();
        for lines in [lines.join("\n"), lines.join(" \r\n\n") + "\n"] {
            prop_assert_eq!(truncate(lines.as_bytes(), &limits).unwrap(), truncate(&array, &limits).unwrap());
        }
    }

    #[test]
    fn arbitrary_bytes_give_valid_json_or_an_error(data: Vec<u8>, limits in limits(), max_bytes in 0..100_usize) {
        check_hostile(&data, &Limits { max_bytes, ..limits })?;
    }

    #[test]
    fn broken_json_gives_valid_json_or_an_error(
        value in document(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), prop::sample::select(&br#"{}[],:"\0"#[..])]), 1..4),
        cut: prop::sample::Index,
        limits in limits(),
        max_bytes in 0..2000_usize,
    ) {
        let mut data = serde_json::to_vec(&value).unwrap();
        for (at, byte) in edits {
            let at = at.index(data.len());
            data[at] = byte;
        }
        check_hostile(&data, &Limits { max_bytes, ..limits })?;
        data.truncate(cut.index(data.len() + 1));
        check_hostile(&data, &Limits { max_bytes, ..limits })?;
    }
}

fn check_hostile(data: &[u8], limits: &Limits) -> std::result::Result<(), TestCaseError> {
    match truncate(data, limits) {
        Ok(answer) => {
            prop_assert!(answer.len() <= limits.max_bytes);
            prop_assert!(std::str::from_utf8(&answer).is_ok());
            prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&answer).is_ok());
        }
        Err(error) => prop_assert!(error.index <= data.len() as u64),
    }
    Ok(())
}

fn shown(data: &str, limits: &Limits) -> String {
    String::from_utf8(truncate(data.as_bytes(), limits).unwrap()).unwrap()
}

fn within(max_bytes: usize) -> Limits {
    Limits { max_bytes, ..Limits::default() }
}

#[test]
fn every_sibling_appears_before_more_of_one() {
    let record = json!({"id": 1, "name": "n".repeat(40), "tags": ["a".repeat(40), "b".repeat(40)]});
    let data = json!({"meta": {"pages": record}, "rows": vec![record.clone(); 12]}).to_string();
    let closed = r#"{"meta":{"pages":{"...":3}},"rows":{"items":[{"...":3},{"...":3},{"...":3},{"...":3},{"...":3},{"...":3},{"...":3},{"...":3},{"...":3},{"...":3}],"totalCount":12,"showing":10}}"#;
    assert_eq!(shown(&data, &within(closed.len())), closed);
    let example = closed.replacen(r#"[{"...":3}"#, r#"[{"id":1,"...":2}"#, 1);
    let example = example.replacen(r#""pages":{"...":3}"#, r#""pages":{"id":1,"...":2}"#, 1);
    assert_eq!(shown(&data, &within(example.len())), example);
}

#[test]
fn a_complete_array_needs_no_wrapper() {
    let data = format!("[{}]", ["1234567"; 10].join(","));
    let five = r#"{"items":[1234567,1234567,1234567,1234567,1234567],"totalCount":10,"showing":5}"#;
    assert_eq!(shown(&data, &within(80)), five);
    assert_eq!(shown(&data, &within(81)), data);
}

#[test]
fn a_string_is_cut_to_fill_the_budget() {
    let data = json!({"a": 1, "b": "x".repeat(200)}).to_string();
    assert_eq!(shown(&data, &within(60)).len(), 60);
    assert_eq!(shown(&data, &within(100)).len(), 100);
    assert_eq!(shown(r#""abcdefgh""#, &within(8)), r#""abc...""#);
}

#[test]
fn the_smallest_budget_is_named() {
    let smallest = |data: &str| {
        (0..20)
            .find_map(|max_bytes| truncate(data.as_bytes(), &within(max_bytes)).ok().map(|_| max_bytes))
            .unwrap()
    };
    for (data, bytes) in [
        ("1", 1),
        ("[]", 2),
        (r#""abcdefgh""#, 5),
        ("12345678901234567890", 13),
        (r#"{"a":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#, 9),
        ("[1234567890,1234567890,1234567890,1234567890,1234567890,1234567890]", 13),
    ] {
        assert_eq!(smallest(data), bytes, "{data}");
        let error = truncate(data.as_bytes(), &within(0)).unwrap_err().to_string();
        assert!(error.ends_with(&format!("takes {bytes}")), "{data}: {error}");
    }
}

#[test]
fn the_marker_never_equals_a_key() {
    let limits = Limits { max_object_keys: 2, ..Limits::default() };
    assert_eq!(shown(r#"{"...":1,"b":2,"c":3}"#, &limits), r#"{"...":1,"b":2,"....":1}"#);
    assert_eq!(shown(r#"{"\u002e...":1,"..":2,"c":3}"#, &limits), r#"{"\u002e...":1,"..":2,".....":1}"#);
    assert_eq!(shown(r#"{"a":1,"b":2,"...":3}"#, &limits), r#"{"a":1,"b":2,"...":1}"#);
}

#[test]
fn keys_of_dots_differ_from_the_marker_at_every_budget() {
    let value = json!({"...": [1, 2, 3], "....": "x".repeat(99), ".....": 4, "a": "y".repeat(99), "b": 6});
    let data = value.to_string();
    for max_bytes in 9..data.len() {
        let answer = shown(&data, &within(max_bytes));
        assert!(answer.len() <= max_bytes);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let is_shown = |key: &str| answer.get(key).is_some_and(|shown| shows_no_less(shown, &value[key]));
        let shown = value.as_object().unwrap().keys().filter(|key| is_shown(key)).count();
        let marker = ["...", "....", ".....", "......"].into_iter().find(|key| !is_shown(key)).unwrap();
        match answer.get(marker) {
            Some(count) => {
                assert_eq!((count, answer.as_object().unwrap().len()), (&json!(5 - shown), shown + 1))
            }
            None => assert_eq!(shown, 5),
        }
    }
}

#[test]
fn long_keys_and_numbers_are_bounded_too() {
    let limits = Limits { max_string_chars: 5, ..Limits::default() };
    let (key, number) = ("k".repeat(65), "1".repeat(65));
    let expected = format!(r#"{{"{}...":"[truncated]"}}"#, "k".repeat(64));
    assert_eq!(shown(&format!(r#"{{"{key}":{number}}}"#), &limits), expected);
    let data = format!(r#"{{"{}":{}}}"#, &key[1..], &number[1..]);
    assert_eq!(shown(&data, &limits), data);
}

#[test]
fn a_value_too_deep_is_shown_if_the_marker_is_not_shorter() {
    let limits = Limits { max_depth: 1, max_array_items: 4, max_string_chars: 10, ..Limits::default() };
    for (value, is_shown) in [
        ("7", true),
        ("-1.5e300", true),
        ("null", true),
        (r#""""#, true),
        (r#""0123456789""#, true),
        (r#""01234\u00e9""#, true),
        (r#""012345\u00e9""#, false),
        (r#""0123456789a""#, false),
        ("1234567890123", true),
        ("12345678901234", false),
        ("[ ]", true),
        (r#"{"a": [1, 234]}"#, true),
        (r#"{"a": [1, 2345]}"#, false),
        ("[[[[[[]]]]]]", true),
        ("[[[[[[[]]]]]]]", false),
        ("[1,2,3,4]", true),
        ("[1,2,3,4,5]", false),
    ] {
        let expected = if is_shown { &value.replace(' ', "") } else { r#""[truncated]""# };
        assert_eq!(
            shown(&format!(r#"{{"a":{{"b":{value}}}}}"#), &limits),
            format!(r#"{{"a":{{"b":{expected}}}}}"#)
        );
    }
}

#[test]
fn keys_that_are_cut_to_the_same_text_are_left_out() {
    let limits = Limits { max_string_chars: 5, ..Limits::default() };
    let key = "k".repeat(64);
    let data = format!(r#"{{"{key}a":1,"{key}":2,"{key}b":3,"c":4,"\u006B{}":5}}"#, &key[..64]);
    assert_eq!(shown(&data, &limits), format!(r#"{{"{key}...":1,"{key}":2,"c":4,"...":2}}"#));
    // They do not count against the limit.
    let two = Limits { max_object_keys: 2, ..limits };
    assert_eq!(shown(&data, &two), format!(r#"{{"{key}...":1,"{key}":2,"...":3}}"#));
    // A lone surrogate has more than one spelling too.
    let data = format!(r#"{{"\ud800{key}a":1,"\uD800{key}b":2,"{key}c":3}}"#);
    assert_eq!(shown(&data, &limits), format!(r#"{{"\ud800{}...":1,"{key}...":3,"...":1}}"#, &key[..63]));
}

#[test]
fn errors_name_the_byte() {
    for (data, index, why) in [
        ("", 0, "unexpected end"),
        ("  ", 2, "unexpected end"),
        ("[1,2", 4, "unexpected end"),
        ("1 2", 2, "expected the end, or a value on a line of its own"),
        ("1\n2 3", 4, "expected the end, or a value on a line of its own"),
        ("{}\nx", 3, "expected a value"),
        ("[1,]", 3, "expected a value"),
        (r#"{"a" 1}"#, 5, "expected a colon"),
        ("[\"a\tb\"]", 3, "control character in a string"),
    ] {
        let error = truncate(data.as_bytes(), &Limits::default()).unwrap_err();
        assert_eq!(error, Error::json(index, why), "{data:?}");
    }
    let deep = Limits { max_depth: 65, ..Limits::default() };
    assert!(matches!(truncate(b"1", &deep).unwrap_err().kind, crate::ErrorKind::InvalidArgument(_)));
}

/// A thousand objects of a hundred keys: the recorded nodes are bounded by the budget.
#[test]
fn recorded_nodes_are_bounded_by_the_budget() {
    let leaf: Value = (0..100).map(|i| (format!("k{i}"), json!(i))).collect::<serde_json::Map<_, _>>().into();
    let mut value = leaf;
    for _ in 0..3 {
        value = Value::Array(vec![value; 10]);
    }
    let data = serde_json::to_vec(&value).unwrap();
    let tree = walk::walk(&data, &Limits::default(), 2048, Isa::detect()).unwrap();
    assert!(tree.levels.iter().map(Vec::len).sum::<usize>() < 2048);
}
