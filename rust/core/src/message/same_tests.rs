use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::message::Source;
use crate::testing;

fn with<T>(one: &[u8], other: &[u8], verb: impl Fn(&Value<'_>, &Value<'_>) -> Result<T>) -> T {
    let (one, other) = (Source::Memory(one), Source::Memory(other));
    let whole = |source| Value { source, span: 0..u64::MAX };
    fn bounded<'a>(value: Value<'a>) -> Value<'a> {
        let Source::Memory(data) = value.source else { return value };
        Value { span: 0..data.len() as u64, ..value }
    }
    verb(&bounded(whole(&one)), &bounded(whole(&other))).unwrap()
}

fn token(text: &str, is_ascii: bool) -> Vec<u8> {
    let token = serde_json::to_string(text).unwrap();
    if is_ascii { ascii(&token).into_bytes() } else { token.into_bytes() }
}

/// The same JSON, with everything escaped that is not ASCII.
fn ascii(json: &str) -> String {
    let mut units = [0; 2];
    let escaped =
        |c: char| c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
    let mut escaped = escaped;
    json.chars().map(|c| if c.is_ascii() { c.to_string() } else { escaped(c) }).collect()
}

fn written(value: &Json, form: u8) -> String {
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
    fn says_what_it_says_however_it_is_written(value in testing::json(), one in 0..4_u8, other in 0..4_u8, is_ascii: bool) {
        let text = token(&written(&value, one), is_ascii);
        prop_assert!(with(&text, written(&value, other).as_bytes(), says));
    }

    #[test]
    fn says_nothing_else(value in testing::json(), other in testing::json(), form in 0..4_u8) {
        let text = token(&written(&value, form), form & 1 == 0);
        let is_text = other.as_str().is_some_and(|other| other == written(&value, form));
        let (value, other) = (value.to_string(), other.to_string());
        prop_assert_eq!(with(&text, other.as_bytes(), says), is_text || value == other);
    }

    #[test]
    fn a_byte_more_or_less_is_something_else(value in testing::json(), at in any::<prop::sample::Index>(), byte in 0..128_u8) {
        let text = value.to_string();
        let mut changed = text.clone().into_bytes();
        let at = at.index(changed.len());
        changed[at] = byte;
        let Ok(changed) = String::from_utf8(changed) else { return Ok(()) };
        // How a character is escaped changes nothing; a number is what is written, whichever float is nearest to it.
        let read = serde_json::from_str::<Json>(&changed).map(|changed| changed.to_string());
        let is_same = changed == text || (is_in_string(&text, at) && read.is_ok_and(|read| read == text));
        let is_string = value.as_str() == Some(changed.as_str());
        if serde_json::from_str::<Json>(&changed).is_ok() || !changed.contains('\\') {
            prop_assert_eq!(with(&token(&changed, false), text.as_bytes(), says), is_same || is_string, "{}", changed);
        }
    }

    #[test]
    fn texts_are_the_same_if_they_are(one in testing::text(), other in testing::text(), is_ascii: bool) {
        prop_assert!(with(&token(&one, is_ascii), &token(&one, !is_ascii), same_text));
        prop_assert_eq!(with(&token(&one, is_ascii), &token(&other, false), same_text), one == other);
    }

    #[test]
    fn each_says_its_item(items in prop::collection::vec(testing::json(), 0..5), form in 0..4_u8, drop in 0..6_usize) {
        let text = |item: &Json| item.as_str().map_or_else(|| written(item, form), str::to_owned);
        let blocks: Vec<_> = items.iter().map(|item| json!({"type": "text", "text": text(item)})).collect();
        let content = written(&Json::from(blocks.clone()), form);
        let said = Json::from(items.clone()).to_string();
        prop_assert!(with(content.as_bytes(), said.as_bytes(), each_says));
        if drop < items.len() {
            let mut fewer = items;
            fewer.remove(drop);
            prop_assert!(!with(content.as_bytes(), Json::from(fewer).to_string().as_bytes(), each_says));
        }
    }

    #[test]
    fn a_file_is_as_good_as_memory(value in testing::json(), padding in 0..3_usize) {
        let text = token(&written(&value, 1), true);
        let padding = vec![b' '; padding * 50_000];
        let path = std::env::temp_dir().join(format!("forebay-same-{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::write(&path, [text.as_slice(), b" ", &padding, value.to_string().as_bytes(), &padding].concat()).unwrap();
        let source = Source::open(&path).unwrap();
        let end = std::fs::metadata(&path).unwrap().len();
        let middle = text.len() as u64;
        let said = says(&Value { source: &source, span: 0..middle }, &Value { source: &source, span: middle..end });
        std::fs::remove_file(&path).unwrap();
        prop_assert_eq!(said, Ok(true));
    }
}

#[test]
fn what_is_not_quite_the_same_is_not() {
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
        assert!(!with(&token(text, false), value.as_bytes(), says), "{text} is not {value}");
    }
    assert!(with(br#""a\u00e9""#, "\"aé\"".as_bytes(), same_text));
    assert!(with(br#""\"a\"""#, br#""a""#, same_json));
    assert!(!with(br#""\"a\"""#, br#""a""#, same_text));
}

#[test]
fn a_block_with_more_in_it_is_none() {
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
        assert!(!with(content.as_bytes(), b"[1]", each_says), "{content}");
    }
    assert!(with(br#"[{"text":"1" , "type":"text"}]"#, b"[1]", each_says));
    assert!(with(br#"[]"#, b"[]", each_says));
}

#[test]
fn an_only_member_is_found() {
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
