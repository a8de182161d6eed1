//! Redaction: compared with replacing matches of the `regex` crate in the strings of serde_json's values.

use std::sync::LazyLock;

use forebay_core::redact::{REPLACEMENT, Redactor};
use regex::bytes::{NoExpand, Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::{Input, oracle};

/// Expressions that match no number and not what they are replaced by.
const EXPRESSIONS: [&str; 6] = ["name", "fail[a-z]+", "é+", "^i", "m$", r"[\n\t ]+"];

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

static COMPILED: LazyLock<[(Redactor, Regex); 6]> = LazyLock::new(|| {
    EXPRESSIONS.map(|expression| {
        let reference = RegexBuilder::new(expression).multi_line(true).build();
        (Redactor::new(&[expression]).expect("an expression"), reference.expect("an expression"))
    })
});

pub fn compare(Input { knobs, data }: Input<'_>) {
    let (redactor, reference) = &COMPILED[usize::from(knobs[0]) % COMPILED.len()];
    // A byte order mark is no part of a text.
    if data.starts_with(BYTE_ORDER_MARK) {
        return;
    }
    let redacted = redactor.redact(data);
    assert_ne!(redacted.as_deref(), Some(data), "an unchanged payload is not copied");
    let out = redacted.as_deref().unwrap_or(data);
    if is_document(data) && oracle::is_json(data) {
        assert!(oracle::is_json(out), "not JSON: {}", String::from_utf8_lossy(out));
        if let Some(value) = oracle::parse(data)
            && let Some(expected) = naive(&value, reference)
        {
            assert_eq!(oracle::parse(out), Some(expected));
        }
    } else if is_document(data)
        && let Some(rows) = oracle::rows(data)
    {
        let redacted = oracle::rows(out).expect("rows give rows");
        assert_eq!(redacted.len(), rows.len());
    } else {
        assert_eq!(out, &*reference.replace_all(data, NoExpand(REPLACEMENT.as_bytes())));
    }
}

fn is_document(data: &[u8]) -> bool {
    matches!(data.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'))
}

/// Returns the redacted value, or `None` if two keys of an object become equal.
fn naive(value: &Value, reference: &Regex) -> Option<Value> {
    Some(match value {
        Value::String(text) => naive_text(text, reference)?.into(),
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| naive(item, reference)).collect::<Option<_>>()?)
        }
        Value::Object(members) => {
            let mut redacted = Map::new();
            for (key, value) in members {
                redacted.insert(naive_text(key, reference)?, naive(value, reference)?);
            }
            return (redacted.len() == members.len()).then_some(Value::Object(redacted));
        }
        other => other.clone(),
    })
}

/// Returns a text without its secrets, or `None` if it is JSON itself, or has a byte order mark.
fn naive_text(text: &str, reference: &Regex) -> Option<String> {
    if text.as_bytes().starts_with(BYTE_ORDER_MARK) {
        return None;
    }
    if is_document(text.as_bytes()) && oracle::rows(text.as_bytes()).is_some() {
        return None;
    }
    let redacted = reference.replace_all(text.as_bytes(), NoExpand(REPLACEMENT.as_bytes()));
    Some(String::from_utf8(redacted.into_owned()).expect("characters are replaced as a whole"))
}
