use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::csv::{Fields, RowSplitter, count_line_breaks, push_quoted};
use crate::index::Kind;
use crate::search::Pattern;
use crate::validate::Validator;

/// Secrets that are hard to find in JSON as it is written, and an expression for each.
const SECRETS: [(&str, &str); 8] = [
    (r"sk-\w+", "sk-abc123"),
    (r#""pass word""#, "\"pass word\""),
    (r"^line of its own$", "\nline of its own\n"),
    (r"geheim—é+", "geheim—éé"),
    (r"a\\b", "a\\b"),
    (r"token\n\tindented", "token\n\tindented"),
    (r"/etc/\S+", "/etc/shadow"),
    (r"😀x", "😀x"),
];

fn expressions() -> Vec<&'static str> {
    SECRETS.iter().map(|(expression, _)| *expression).collect()
}

fn redact_with(expressions: &[&str], data: &[u8]) -> Option<Vec<u8>> {
    Redactor::new(expressions).unwrap().redact(data)
}

fn redact_str(expression: &str, text: &str) -> String {
    let redacted = redact_with(&[expression], text.as_bytes());
    redacted.map_or(text.to_owned(), |bytes| String::from_utf8(bytes).unwrap())
}

/// Replaces the matches of one expression after the other, with a loop.
fn naive(text: &str) -> String {
    let mut is_secret = vec![false; text.len()];
    let mut starts = vec![false; text.len() + 1];
    for expression in expressions() {
        let pattern = Pattern::regex(expression, false).unwrap();
        for found in pattern.matches(text.as_bytes(), 0) {
            starts[found.start] = !is_secret[found.start];
            for at in found.clone() {
                starts[at] &= at == found.start;
            }
            is_secret[found].fill(true);
        }
    }
    let mut out = String::new();
    for (at, character) in text.char_indices() {
        if starts[at] {
            out.push_str(REPLACEMENT);
        }
        if !is_secret[at] {
            out.push(character);
        }
    }
    out
}

/// What a text can be wrapped in.
#[derive(Debug, Clone)]
enum Wrapper {
    Member,
    Key,
    Item,
    Escaped,
    Pretty,
    Lines,
    Base64,
    UrlSafe,
    DataUrl,
}

const WRAPPERS: [Wrapper; 9] = [
    Wrapper::Member,
    Wrapper::Key,
    Wrapper::Item,
    Wrapper::Escaped,
    Wrapper::Pretty,
    Wrapper::Lines,
    Wrapper::Base64,
    Wrapper::UrlSafe,
    Wrapper::DataUrl,
];

impl Wrapper {
    fn wrap(&self, text: &str) -> String {
        match self {
            Self::Member => json!({"a": 1, "text": text, "b": [true, null]}).to_string(),
            Self::Key => json!({ text: 1 }).to_string(),
            Self::Item => json!(["", text]).to_string(),
            Self::Escaped => {
                let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
                format!("[\"{}\"]", units.collect::<String>())
            }
            Self::Pretty => serde_json::to_string_pretty(&json!({"x": {"text": text}})).unwrap(),
            Self::Lines => format!("{}\n{}\n", json!({"n": 1}), json!({ "text": text })),
            Self::Base64 => STANDARD.encode(text),
            Self::UrlSafe => URL_SAFE_NO_PAD.encode(text),
            Self::DataUrl => format!("data:text/plain;base64,{}", STANDARD.encode(text)),
        }
    }

    fn unwrap(&self, wrapped: &str) -> String {
        let value = || serde_json::from_str::<Value>(wrapped).unwrap();
        let decode = |text: &str| {
            let text = text.trim_end_matches('=');
            let bytes = STANDARD_NO_PAD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text)).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        match self {
            Self::Member => value()["text"].as_str().unwrap().to_owned(),
            Self::Key => value().as_object().unwrap().keys().next().unwrap().clone(),
            Self::Item => value()[1].as_str().unwrap().to_owned(),
            Self::Escaped => value()[0].as_str().unwrap().to_owned(),
            Self::Pretty => value()["x"]["text"].as_str().unwrap().to_owned(),
            Self::Lines => {
                let line: Value = serde_json::from_str(wrapped.lines().nth(1).unwrap()).unwrap();
                line["text"].as_str().unwrap().to_owned()
            }
            Self::Base64 | Self::UrlSafe => decode(wrapped),
            Self::DataUrl => decode(wrapped.strip_prefix("data:text/plain;base64,").unwrap()),
        }
    }
}

/// Text with secrets: long enough to be found in base64, and neither JSON nor base64 itself.
fn text() -> impl Strategy<Value = String> {
    let secret = prop::sample::select(SECRETS.map(|(_, secret)| secret.to_owned()).to_vec());
    let piece = prop_oneof![3 => crate::testing::text(), 2 => secret];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| format!("some text: {}", pieces.concat()))
}

/// Redacts each cell of rows as the value that it is in the row's object, in either spelling.
fn naive_cells(redactor: &Redactor, names: &[String], row: &[String]) -> Vec<String> {
    let mut cells: Vec<String> = row.iter().map(|cell| redact_text_with(redactor, cell)).collect();
    for [colon, comma] in [[":", ","], [": ", ", "]] {
        let members: Vec<String> = names
            .iter()
            .zip(row)
            .map(|(name, cell)| format!("{}{colon}{}", json!(name), json!(cell)))
            .collect();
        let object = redact_text_with(redactor, &format!("{{{}}}", members.join(comma)));
        let values = Tokens::new(object.as_bytes(), 0).skip(1).step_by(2);
        for (cell, value) in cells.iter_mut().zip(values) {
            let value: String = serde_json::from_str(&object[value.span]).unwrap();
            if value == REPLACEMENT {
                *cell = value;
            }
        }
    }
    cells
}

fn redact_text_with(redactor: &Redactor, text: &str) -> String {
    let redacted = redactor.redact(text.as_bytes());
    redacted.map_or(text.to_owned(), |bytes| String::from_utf8(bytes).unwrap())
}

fn parse_rows(csv: &[u8], delimiter: u8) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut rest = &csv[count_line_breaks(csv)..];
    while !rest.is_empty() {
        let end = RowSplitter::inside(delimiter).row_end(rest).unwrap_or(rest.len());
        let (mut fields, mut field) = (Fields::new(&rest[..end], delimiter), Vec::new());
        let mut row = Vec::new();
        while fields.read(&mut field).is_some() {
            row.push(String::from_utf8(field.clone()).unwrap());
        }
        rows.push(row);
        rest = &rest[end + count_line_breaks(&rest[end..])..];
    }
    rows
}

proptest! {
    #[test]
    fn cells_are_redacted_like_the_values_of_objects(
        names in prop::collection::hash_set("(pass|user|é|\"|, |\n){1,2}", 1..4),
        rows in prop::collection::vec(
            prop::collection::vec("(hunter1|x|é|\"|,|\n|\\{\"pass\":\"hunter1\"\\}|token=y){0,2}", 3),
            0..4,
        ),
        kind in prop::sample::select(&[Kind::Csv, Kind::Tsv][..]),
    ) {
        let expressions = [r#""pass":"[^"]*""#, r#"pass": "x"#, "hunter1", "token=.*", r#""user": "x", ""#, r"é\W+x"];
        let delimiter = kind.delimiter().unwrap();
        let names: Vec<String> = names.into_iter().collect();
        let mut csv = Vec::new();
        for row in [&names].into_iter().chain(&rows) {
            for (number, cell) in row.iter().enumerate().take(names.len()) {
                if number > 0 {
                    csv.push(delimiter);
                }
                push_quoted(cell.as_bytes(), &mut csv);
            }
            csv.push(b'\n');
        }
        for expression in expressions {
            let redactor = Redactor::new(&[expression]).unwrap();
            let redacted = redactor.redact_cells(&csv, kind);
            let read = parse_rows(redacted.as_deref().unwrap_or(&csv), delimiter);
            let expected_names: Vec<String> = names.iter().map(|name| redact_text_with(&redactor, name)).collect();
            prop_assert_eq!(&read[0], &expected_names);
            prop_assert_eq!(read.len(), rows.len() + 1);
            for (read, row) in read[1..].iter().zip(&rows) {
                prop_assert_eq!(read, &naive_cells(&redactor, &names, &row[..names.len()]));
            }
            prop_assert_ne!(redacted.as_deref(), Some(&*csv), "an unchanged payload is not copied");
        }
    }

    #[test]
    fn finds_the_same_in_every_wrapper(
        text in text(),
        wrappers in prop::collection::vec(prop::sample::select(WRAPPERS.to_vec()), 0..4),
    ) {
        let wrapped = wrappers.iter().fold(text.clone(), |inner, wrapper| wrapper.wrap(&inner));
        let redacted = redact_with(&expressions(), wrapped.as_bytes());
        let expected = naive(&text);
        prop_assert_eq!(redacted.is_some(), expected != text);
        let redacted = redacted.map_or(wrapped, |bytes| String::from_utf8(bytes).unwrap());
        let read = wrappers.iter().rev().fold(redacted, |outer, wrapper| wrapper.unwrap(&outer));
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn documents_stay_valid(value in crate::testing::json()) {
        let text = serde_json::to_vec(&[value]).unwrap();
        let redactor = Redactor::new(&["[ae]", r"\d\d", "[{\"\u{301}]"]).unwrap();
        let redacted = redactor.redact(&text).unwrap_or(text);
        let mut validator = Validator::new(Isa::detect());
        prop_assert!(validator.feed(&redacted).and_then(|()| validator.finish()).is_ok());
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(data: Vec<u8>) {
        let redactor = Redactor::new(&["a", r#""[^"]*"#, "(?-u:[\\x80-\\xff])"]).unwrap();
        let _ = redactor.redact(&data);
        let _ = redactor.redact(&[b"[\"", &data[..], b"\"]"].concat());
    }
}

#[test]
fn numbers_become_strings() {
    assert_eq!(redact_str(r"\d{4}", r#"{"card": 41111, "n": 12}"#), r#"{"card": "[redacted]1", "n": 12}"#);
    assert_eq!(redact_str(r"\d{4}", "41111"), "[redacted]1");
}

#[test]
fn a_match_over_several_tokens_replaces_each_of_them() {
    let json = r#"{"a": {"password": "hunter2", "n": 1}, "b": "hunter2"}"#;
    let redacted = r#"{"a": {"[redacted]": "[redacted]", "n": 1}, "b": "hunter2"}"#;
    for expression in [r#""password":\s*"[^"]*""#, r#"password":\s*"\w+"#, r#"assword": "h"#] {
        assert_eq!(redact_str(expression, json), redacted, "{expression}");
    }
    let wrapped = json!({ "text": json }).to_string();
    assert_eq!(redact_str(r#""password":\s*"[^"]*""#, &wrapped), json!({ "text": redacted }).to_string());
}

#[test]
fn a_match_that_runs_on_ends_with_its_text() {
    let json = r#"{"a": "token=abc", "b": "more"}"#;
    for expression in ["token=.*", ".*token.*", "token.*$"] {
        assert_eq!(redact_str(expression, json), r#"{"a": "[redacted]", "b": "more"}"#, "{expression}");
    }
}

#[test]
fn spelling_does_not_hide_a_secret() {
    for json in [r#"["\u0073k-1"]"#, r#"["sk\u002D1"]"#, r#"{"sk-1":0}"#, r#"["[\"\\u0073k-1\"]"]"#] {
        let redacted = redact_str("sk-1", json);
        assert!(redacted.contains(REPLACEMENT) && !redacted.contains("k-1"), "{redacted}");
    }
}

#[test]
fn a_secret_may_look_like_base64() {
    let key = "c2VjcmV0IGtleSA0Mg==";
    assert_eq!(redact_str("c2VjcmV0[A-Za-z0-9]+", &format!("[\"{key}\"]")), r#"["[redacted]=="]"#);
}

#[test]
fn lone_surrogates_survive_beside_a_secret() {
    assert_eq!(redact_str("sk-1", r#"["\ud800 sk-1 \udfff"]"#), r#"["\ud800 [redacted] \udfff"]"#);
}

#[test]
fn a_byte_order_mark_hides_nothing() {
    assert_eq!(redact_str("sk-1", "\u{feff}[\"\\u0073k-1\"]"), "\u{feff}[\"[redacted]\"]");
}

#[test]
fn overlapping_matches_are_replaced_once() {
    let redacted = redact_with(&["abc", "bcd", "x"], b"abcdx").unwrap();
    assert_eq!(redacted, b"[redacted][redacted]");
}

#[test]
fn filters_see_each_text_and_may_fail() {
    struct Texts(Vec<String>);
    impl Filter for Texts {
        type Error = ();
        fn filter(&mut self, text: &[u8]) -> Result<Option<Vec<u8>>, ()> {
            self.0.push(String::from_utf8_lossy(text).into_owned());
            if text == b"bad" { Err(()) } else { Ok((text == b"raw").then(|| vec![b'"', 0xff, 0xed])) }
        }
    }
    let mut texts = Texts(Vec::new());
    let redacted = redact(br#"{"k": [1.50, true, "a\nb", "{\"in\": 2}", "raw"]}"#, &mut texts).unwrap();
    assert_eq!(texts.0, ["k", "1.50", "a\nb", "in", "2", "raw"]);
    let expected = "{\"k\": [1.50, true, \"a\\nb\", \"{\\\"in\\\": 2}\", \"\\\"\u{fffd}\u{fffd}\"]}";
    assert_eq!(String::from_utf8(redacted.unwrap()).unwrap(), expected);
    assert_eq!(redact(br#"["ok", "bad", "never"]"#, &mut texts), Err(()));
    assert_eq!(texts.0.last().unwrap(), "bad");
}

#[test]
fn cells_are_texts() {
    let redactor = Redactor::new(&[r#""key": "\w+""#, "sk-1"]).unwrap();
    let redact = |csv: &str, kind| {
        redactor.redact_cells(csv.as_bytes(), kind).map(|redacted| String::from_utf8(redacted).unwrap())
    };
    let (csv, redacted) = (
        "\u{feff}id,sk-1\r\n1,\"{\"\"key\"\": \"\"a\"\"}\"\r\n\"s\"k-1",
        "\u{feff}id,[redacted]\r\n1,\"{\"\"[redacted]\"\": \"\"[redacted]\"\"}\"\r\n\"[redacted]\"",
    );
    assert_eq!(redact(csv, Kind::Csv).as_deref(), Some(redacted));
    assert_eq!(redact(&csv.replace(',', "\t"), Kind::Tsv), Some(redacted.replace(',', "\t")));
    assert_eq!(redact("id\n\n1,,\n", Kind::Csv), None);
    assert_eq!(redact("", Kind::Csv), None);
    assert_eq!(redact("sk-1", Kind::Lines), None);
}

#[test]
fn only_some_expressions_match_quotes() {
    for expression in
        ["\"", r"a\W+b", ".", "[^a]", r"(x|(y\x22)?)+z", "(?-u:[\\x00-\\xff])", "(?i)\"", "a|\""]
    {
        assert!(Pattern::regex(expression, false).unwrap().matches_quotes(), "{expression}");
    }
    for expression in
        ["sk-", r"\w+@\w+\.(com|org)", "[^\"]+", r"^\bé{2,}$", "(?-u:[\\x80-\\xff])", "(?i)pass", "a|b"]
    {
        assert!(!Pattern::regex(expression, true).unwrap().matches_quotes(), "{expression}");
    }
}

#[test]
fn a_cell_is_the_value_of_its_column() {
    let redact = |expression: &str, csv: &str| {
        let redacted = Redactor::new(&[expression]).unwrap().redact_cells(csv.as_bytes(), Kind::Csv);
        redacted.map_or(csv.to_owned(), |redacted| String::from_utf8(redacted).unwrap())
    };
    let csv = "user,password,note\na,hunter2,hunter2\n\"b\",\"x \"\"y\"\"\"\nc\n";
    let redacted = "user,password,note\na,[redacted],hunter2\n\"b\",\"[redacted]\"\nc\n";
    for expression in [r#""password": "(\\.|[^"])*""#, r#""password":"(\\.|[^"])*""#, r#"password":\s*""#] {
        assert_eq!(redact(expression, csv), redacted, "{expression}");
        assert_eq!(redact(expression, redacted), redacted, "{expression}");
    }
    let both = "user,password,note\na,[redacted],[redacted]\n\"b\",\"x \"\"y\"\"\"\nc\n";
    assert_eq!(redact(r#""password": "\w+", "note": "\w+""#, csv), both);
    // Columns are called as in a row's object, but each column of a name has that name.
    assert_eq!(redact(r#""password":"2""#, "password,password\n1,2\n"), "password,password\n1,[redacted]\n");
    assert_eq!(redact(r#""column_\d":"2""#, "a,\n1,2,2\n"), "a,\n1,[redacted],[redacted]\n");
    // A match in one text ends there.
    assert_eq!(redact("token=.*", "a,b\ntoken=1,2\n"), "a,b\n[redacted],2\n");
}

#[test]
fn a_long_name_is_not_copied_for_each_row() {
    let name = format!("{}password", "\u{e9}".repeat(500_000));
    let csv = format!("{name}\n{}hunter2\n", "x\n".repeat(100_000));
    let redacted =
        Redactor::new(&[r#"password":"hunter2""#]).unwrap().redact_cells(csv.as_bytes(), Kind::Csv);
    assert_eq!(redacted.unwrap(), csv.replace("hunter2", "[redacted]").as_bytes());
}
