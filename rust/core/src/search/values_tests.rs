use std::fmt::Write as _;
use std::ops::Range;

use proptest::prelude::*;
use serde_json::Value;

use super::super::{Options, Pattern, count, search};
use crate::index::{ItemIndex, index_items};
use crate::testing;

const ALL: Options = Options { offset: 0, limit: usize::MAX, context: 0, paths: false };

/// A character of a text, or a part of one that is not UTF-8, and the bytes that it is written with.
struct Unit {
    decoded: Vec<u8>,
    raw: Range<usize>,
}

/// Reference: splits JSON into its texts one character at a time.
fn texts(data: &[u8]) -> Vec<Vec<Unit>> {
    let mut texts = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let mut units = Vec::new();
        if data[at] == b'"' {
            at += 1;
            while data[at] != b'"' {
                let len = if data[at] == b'\\' { if data[at + 1] == b'u' { 6 } else { 2 } } else { 1 };
                let mut raw = at..at + len;
                let mut decoded = data[raw.clone()].to_vec();
                if len == 6 {
                    let unit = |at: usize| {
                        let digits = std::str::from_utf8(&data[at + 2..at + 6]).unwrap();
                        u16::from_str_radix(digits, 16).unwrap()
                    };
                    let mut written = vec![unit(at)];
                    if (0xd800..0xdc00).contains(&written[0]) {
                        written.push(unit(at + 6));
                        raw.end += 6;
                    }
                    decoded = String::from_utf16(&written).unwrap().into_bytes();
                } else if len == 2 {
                    let escape = format!("\"\\{}\"", char::from(data[at + 1]));
                    decoded = serde_json::from_str::<String>(&escape).unwrap().into_bytes();
                }
                at = raw.end;
                units.push(Unit { decoded, raw });
            }
            at += 1;
        } else if data[at].is_ascii_alphanumeric() || data[at] == b'-' {
            while data.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)) {
                units.push(Unit { decoded: vec![data[at]], raw: at..at + 1 });
                at += 1;
            }
        } else {
            at += 1;
            continue;
        }
        texts.push(units);
    }
    texts
}

/// Reference: searches every text from each of its characters on.
fn naive(data: &[u8], pattern: &Pattern, offset: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for units in texts(data) {
        let decoded: Vec<u8> = units.iter().flat_map(|unit| unit.decoded.clone()).collect();
        let mut starts = vec![0];
        for unit in &units {
            starts.push(starts.last().unwrap() + unit.decoded.len());
        }
        let mut first = units.iter().take_while(|unit| unit.raw.start < offset).count();
        while let Some(at) = pattern.searcher().find(&decoded, starts[first]) {
            let start = starts.iter().rposition(|&start| start <= at.start).unwrap();
            let end = starts.iter().position(|&start| start >= at.end).unwrap();
            found.push(units[start].raw.start..units[end - 1].raw.end);
            first = end;
        }
    }
    found
}

fn spans(data: &[u8], pattern: &Pattern, options: Options, index: Option<&ItemIndex>) -> Vec<Range<usize>> {
    let page = search(data, pattern, options, index).unwrap();
    page.matches.iter().map(|found| found.start..found.end).collect()
}

/// Writes a value with random white space, and random characters as escapes.
fn write(value: &Value, choices: &mut impl Iterator<Item = u8>, out: &mut String) {
    let space = |choice: u8| ["", "", " ", "\n"][usize::from(choice % 4)];
    let write_text = |text: &str, choices: &mut dyn Iterator<Item = u8>, out: &mut String| {
        out.push('"');
        for char in text.chars() {
            if choices.next().unwrap().is_multiple_of(3) || (char.is_control() || "\"\\".contains(char)) {
                let short = serde_json::to_string(&char).unwrap();
                if char.is_ascii() && choices.next().unwrap().is_multiple_of(2) {
                    out.push_str(&short[1..short.len() - 1]);
                } else {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        write!(out, "\\u{unit:04x}").unwrap();
                    }
                }
            } else {
                out.push(char);
            }
        }
        out.push('"');
    };
    match value {
        Value::String(text) => write_text(text, choices, out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                out.push_str(space(choices.next().unwrap()));
                write(item, choices, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (at, (key, member)) in members.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write_text(key, choices, out);
                out.push(':');
                out.push_str(space(choices.next().unwrap()));
                write(member, choices, out);
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn documents() -> impl Strategy<Value = String> {
    (testing::json(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(value, choices)| {
        let mut out = String::new();
        write(&value, &mut choices.into_iter().cycle(), &mut out);
        out
    })
}

fn patterns() -> impl Strategy<Value = (&'static str, bool)> {
    prop_oneof![
        prop::sample::select(vec![
            "a", "e", "aa", " ", "é", "é漢", "字", "😀", "\"", "\\", "\n", "\n\t", "\u{1}", "1", "true",
            "ul", "0.", "[{,:}]", ",", ":", "\\u",
        ])
        .prop_map(|text| (text, false)),
        prop::sample::select(vec![
            "^.",
            ".$",
            "^[a-z ]+$",
            r"\n",
            r"\d+",
            "(?s).+",
            r"[^a-z]",
            "(?i)E",
            "é.",
            r"\bnull\b",
            "a|e|😀",
            r"(?-u:[\x80-\xff])",
            "^$|x*",
        ])
        .prop_map(|text| (text, true)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn finds_what_decoding_every_text_finds(
        document in documents(), (text, is_regex) in patterns(), offset in 0..60_usize, limit in 1..4_usize,
    ) {
        let data = document.as_bytes();
        let pattern = Pattern::in_values(text, is_regex, false).unwrap();
        let expected = naive(data, &pattern, 0);
        prop_assert_eq!(&spans(data, &pattern, ALL, None), &expected, "{} in {}", text, document);
        let from = naive(data, &pattern, offset);
        prop_assert_eq!(&spans(data, &pattern, Options { offset, ..ALL }, None), &from, "{}", offset);
        prop_assert_eq!(count(data, &pattern, None, None).matches, expected.len() as u64);
        let (mut paged, mut next) = (Vec::new(), Some(0));
        while let Some(offset) = next {
            let page = search(data, &pattern, Options { offset, limit, ..ALL }, None).unwrap();
            paged.extend(page.matches.iter().map(|found| found.start..found.end));
            next = page.next_offset;
        }
        prop_assert_eq!(paged, expected);
    }

    #[test]
    fn an_index_changes_nothing(
        documents in prop::collection::vec(documents(), 1..6), (text, is_regex) in patterns(), offset in 0..90_usize,
    ) {
        let pattern = Pattern::in_values(text, is_regex, false).unwrap();
        let data = format!("{{\"aé\":[{}],\"\\u0061\": 1}}", documents.join(","));
        let index = index_items(data.as_bytes(), Some("/aé"), true).unwrap();
        let options = Options { offset, ..ALL };
        let expected = spans(data.as_bytes(), &pattern, options, None);
        prop_assert_eq!(spans(data.as_bytes(), &pattern, options, Some(&index)), expected);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        data in prop::collection::vec(prop::sample::select(b"\"\\u0a1e,:{[tn \xC3\xA9-".to_vec()), 0..60),
        (text, is_regex) in patterns(), offset in 0..70_usize,
    ) {
        let pattern = Pattern::in_values(text, is_regex, false).unwrap();
        let paths = Options { offset, paths: true, context: 9, ..ALL };
        for found in search(&data, &pattern, paths, None).unwrap().matches {
            prop_assert!(offset <= found.start && found.start < found.end && found.end <= data.len());
        }
    }
}

#[test]
fn long_payloads_are_searched_from_their_middle() {
    // Several blocks of an index, so that a search need not begin at the first byte.
    let item = r#"{"text":"caf\u00e9 \"quoted\" été","n":17}"#;
    let data = format!("[{}]", vec![item; 8000].join(","));
    let index = index_items(data.as_bytes(), None, true).unwrap();
    for (text, is_regex) in [("é", false), ("\"quoted", false), ("caf.", true), ("17", false)] {
        let pattern = Pattern::in_values(text, is_regex, false).unwrap();
        let all = spans(data.as_bytes(), &pattern, ALL, Some(&index));
        for offset in [0, 1, 70_000, 200_007, data.len() - 30] {
            let expected: Vec<_> = all.iter().filter(|found| found.start >= offset).cloned().collect();
            let options = Options { offset, ..ALL };
            assert_eq!(
                spans(data.as_bytes(), &pattern, options, Some(&index)),
                expected,
                "{text} from {offset}"
            );
        }
    }
}
