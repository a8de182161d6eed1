use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::message::Source;
use crate::testing;

fn compare<T>(left: &[u8], right: &[u8], operation: impl Fn(&Value<'_>, &Value<'_>) -> Result<T>) -> T {
    let (left, right) = (Source::Memory(left), Source::Memory(right));
    let whole = |source| Value { source, span: 0..u64::MAX };
    fn bounded<'a>(value: Value<'a>) -> Value<'a> {
        let Source::Memory(data) = value.source else { return value };
        Value { span: 0..data.len() as u64, ..value }
    }
    operation(&bounded(whole(&left)), &bounded(whole(&right))).unwrap()
}

fn encode_string(text: &str, is_ascii: bool) -> Vec<u8> {
    let string = serde_json::to_string(text).unwrap();
    if is_ascii { ascii(&string).into_bytes() } else { string.into_bytes() }
}

/// Returns the same JSON with all non-ASCII characters escaped.
fn ascii(json: &str) -> String {
    let mut units = [0; 2];
    let escaped =
        |c: char| c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
    let mut escaped = escaped;
    json.chars().map(|c| if c.is_ascii() { c.to_string() } else { escaped(c) }).collect()
}

fn encode(value: &Json, form: u8) -> String {
    let text = if form & 1 == 0 { value.to_string() } else { serde_json::to_string_pretty(value).unwrap() };
    if form & 2 == 0 { text } else { ascii(&text) }
}

fn is_in_string(json: &str, at: usize) -> bool {
    let mut is_inside = false;
    let mut is_escaped = false;
    for byte in &json.as_bytes()[..at] {
        is_inside ^= *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
    }
    is_inside
}

proptest! {
    #[test]
    fn a_text_matches_its_value_in_any_encoding(value in testing::json(), one in 0..4_u8, other in 0..4_u8, is_ascii: bool) {
        let text = encode_string(&encode(&value, one), is_ascii);
        prop_assert!(compare(&text, encode(&value, other).as_bytes(), text_matches));
    }

    #[test]
    fn a_text_matches_no_other_value(value in testing::json(), other in testing::json(), form in 0..4_u8) {
        let text = encode_string(&encode(&value, form), form & 1 == 0);
        let is_text = other.as_str().is_some_and(|other| other == encode(&value, form));
        let (value, other) = (value.to_string(), other.to_string());
        prop_assert_eq!(compare(&text, other.as_bytes(), text_matches), is_text || value == other);
    }

    #[test]
    fn a_changed_byte_is_a_difference(value in testing::json(), at in any::<prop::sample::Index>(), byte in 0..128_u8) {
        let text = value.to_string();
        let mut changed = text.clone().into_bytes();
        let at = at.index(changed.len());
        changed[at] = byte;
        let Ok(changed) = String::from_utf8(changed) else { return Ok(()) };
        // Escaping a character differently is no change. Numbers are compared as written, not by value.
        let read = serde_json::from_str::<Json>(&changed).map(|changed| changed.to_string());
        let is_same = changed == text || (is_in_string(&text, at) && read.is_ok_and(|read| read == text));
        let is_string = value.as_str() == Some(changed.as_str());
        if serde_json::from_str::<Json>(&changed).is_ok() || !changed.contains('\\') {
            prop_assert_eq!(compare(&encode_string(&changed, false), text.as_bytes(), text_matches), is_same || is_string, "{}", changed);
        }
    }

    #[test]
    fn same_text_matches_string_equality(one in testing::text(), other in testing::text(), is_ascii: bool) {
        prop_assert!(compare(&encode_string(&one, is_ascii), &encode_string(&one, !is_ascii), same_text));
        prop_assert_eq!(compare(&encode_string(&one, is_ascii), &encode_string(&other, false), same_text), one == other);
    }

    #[test]
    fn texts_match_their_items(items in prop::collection::vec(testing::json(), 0..5), form in 0..4_u8, drop in 0..6_usize) {
        let text = |item: &Json| item.as_str().map_or_else(|| encode(item, form), str::to_owned);
        let blocks: Vec<_> = items.iter().map(|item| json!({"type": "text", "text": text(item)})).collect();
        let content = encode(&Json::from(blocks.clone()), form);
        let array = Json::from(items.clone()).to_string();
        prop_assert!(compare(content.as_bytes(), array.as_bytes(), texts_match_items));
        if drop < items.len() {
            let mut fewer = items;
            fewer.remove(drop);
            prop_assert!(!compare(content.as_bytes(), Json::from(fewer).to_string().as_bytes(), texts_match_items));
        }
    }

    #[test]
    fn files_compare_like_memory(value in testing::json(), padding in 0..3_usize) {
        let text = encode_string(&encode(&value, 1), true);
        let padding = vec![b' '; padding * 50_000];
        let path = std::env::temp_dir().join(format!("forebay-same-{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::write(&path, [text.as_slice(), b" ", &padding, value.to_string().as_bytes(), &padding].concat()).unwrap();
        let source = Source::open(&path).unwrap();
        let end = std::fs::metadata(&path).unwrap().len();
        let middle = text.len() as u64;
        let is_match = text_matches(&Value { source: &source, span: 0..middle }, &Value { source: &source, span: middle..end });
        std::fs::remove_file(&path).unwrap();
        prop_assert_eq!(is_match, Ok(true));
    }
}

#[test]
fn similar_values_differ() {
    for (text, value) in [
        ("1 2", "12"),
        ("[1 2]", "[12]"),
        ("1.0", "1"),
        ("1e2", "100"),
        (r#""a"b"#, r#""ab""#),
        (r#"{"a":1,"a":1}"#, r#"{"a":1}"#),
        (r#"["a"]"#, r#"["a""#),
        (r#"["a","b"]"#, r#"["a,b"]"#),
        ("", "[]"),
        ("\"a", "\"a\""),
    ] {
        assert!(
            !compare(&encode_string(text, false), value.as_bytes(), text_matches),
            "{text} is not {value}"
        );
    }
    assert!(compare(br#""a\u00e9""#, "\"aé\"".as_bytes(), same_text));
    assert!(compare(br#""\"a\"""#, br#""a""#, same_json));
    assert!(!compare(br#""\"a\"""#, br#""a""#, same_text));
}

#[test]
fn blocks_with_other_members_do_not_match() {
    for content in [
        r#"[{"type":"text","text":"1","annotations":{}}]"#,
        r#"[{"type":"image","text":"1"}]"#,
        r#"[{"text":"1"}]"#,
        r#"[{"text":"1","text":"1"}]"#,
        r#"[{"type":"text","type":"text"}]"#,
        r#"[{"type":"text","text":1}]"#,
        r#"["1"]"#,
        r#"{"type":"text","text":"1"}"#,
    ] {
        assert!(!compare(content.as_bytes(), b"[1]", texts_match_items), "{content}");
    }
    assert!(compare(br#"[{"text":"1" , "type":"text"}]"#, b"[1]", texts_match_items));
    assert!(compare(br#"[]"#, b"[]", texts_match_items));
}

#[test]
fn finds_the_only_member() {
    let found = |object: &[u8], name: &str| {
        let source = Source::Memory(object);
        only_member(&Value { source: &source, span: 0..object.len() as u64 }, name).unwrap()
    };
    assert_eq!(found(br#"{"result": [1, 2]}"#, "result"), Some(11..17));
    assert_eq!(found(br#"{"result": [1, 2], "a": 1}"#, "result"), None);
    assert_eq!(found(br#"{"other": 1}"#, "result"), None);
    assert_eq!(found(b"{}", "result"), None);
    assert_eq!(found(b"[]", "result"), None);
}
