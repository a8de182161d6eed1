//! Redaction of CSV and TSV: compared with the redaction of each cell, and of each row as a JSON object, after reading
//! the rows one character at a time.

use std::sync::LazyLock;

use forebay_core::index::Kind;
use forebay_core::redact::{REPLACEMENT, Redactor};
use serde_json::Value;

use crate::Input;

const EXPRESSIONS: [&str; 8] = [
    "name",
    "fail[a-z]+",
    "^i|m$",
    r"[\n\t ]+",
    r#""id": ?"[^"]*""#,
    r#""name":\s*".*fail"#,
    r#""a":"(\\.|[^"])*","#,
    r"d\W+(é|0)",
];

static REDACTORS: LazyLock<[Redactor; 8]> =
    LazyLock::new(|| EXPRESSIONS.map(|expression| Redactor::new(&[expression]).expect("an expression")));

/// Maximum bytes of an input that are used: the reference sets up a new search for each cell.
const MAX_DATA_BYTES: usize = 1000;

/// Headers to put before an input, so that its columns have names that the expressions match.
const HEADERS: [&str; 4] = ["", "id,name,a\n", "a\tid\tname\tid\n", "\u{feff}\r\n\"name\",\"\"\n"];

pub fn compare(Input { knobs, data }: Input<'_>) {
    let redactor = &REDACTORS[usize::from(knobs[0]) % REDACTORS.len()];
    let (kind, delimiter) = if knobs[1] % 2 == 0 { (Kind::Csv, ',') } else { (Kind::Tsv, '\t') };
    let header = HEADERS[usize::from(knobs[2]) % HEADERS.len()];
    let csv = [header.as_bytes(), &data[..data.len().min(MAX_DATA_BYTES)]].concat();
    let redacted = redactor.redact_cells(&csv, kind);
    assert_ne!(redacted.as_deref(), Some(&*csv), "an unchanged payload is not copied");
    let Ok(text) = std::str::from_utf8(&csv) else { return };
    let out = redacted.as_deref().unwrap_or(&csv);
    let read = read_rows(std::str::from_utf8(out).expect("cells are replaced as a whole"), delimiter);
    let mut rows = read_rows(text, delimiter).into_iter();
    let names = rows.next().unwrap_or_default();
    let header = (!names.is_empty()).then(|| names.iter().map(|name| redact_text(redactor, name)).collect());
    let expected: Vec<Vec<String>> =
        header.into_iter().chain(rows.map(|row| redact_row(redactor, &names, &row))).collect();
    assert_eq!(read, expected);
}

fn redact_text(redactor: &Redactor, text: &str) -> String {
    let redacted = redactor.redact(text.as_bytes());
    redacted.map_or(text.to_owned(), |bytes| {
        String::from_utf8(bytes).expect("characters are replaced as a whole")
    })
}

fn redact_row(redactor: &Redactor, names: &[String], row: &[String]) -> Vec<String> {
    let mut cells: Vec<String> = row.iter().map(|cell| redact_text(redactor, cell)).collect();
    for [colon, comma] in [[":", ","], [": ", ", "]] {
        let members = row.iter().enumerate().map(|(number, cell)| {
            let name = names.get(number).filter(|name| !name.is_empty());
            let name = name.cloned().unwrap_or_else(|| format!("column_{}", number + 1));
            format!("{}{colon}{}", Value::from(name), Value::from(&**cell))
        });
        let object = format!("{{{}}}", members.collect::<Vec<_>>().join(comma));
        for (cell, value) in cells.iter_mut().zip(read_values(&redact_text(redactor, &object))) {
            if value == REPLACEMENT {
                *cell = value;
            }
        }
    }
    cells
}

/// Returns the values of an object of strings in order, those of duplicate keys included.
fn read_values(object: &str) -> Vec<String> {
    let mut rest = object.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).expect("an object");
    let mut values = Vec::new();
    while !rest.is_empty() {
        let mut pair = Vec::new();
        while pair.len() < 2 {
            let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            pair.push(strings.next().expect("a string").expect("a string"));
            rest = rest[strings.byte_offset()..].trim_start_matches([':', ',', ' ']);
        }
        values.extend(pair.pop());
    }
    values
}

/// Reads the fields of all rows, one character at a time.
fn read_rows(text: &str, delimiter: char) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut chars = text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable();
    while chars.peek().is_some() {
        if chars.next_if(|char| matches!(char, '\r' | '\n')).is_some() {
            continue;
        }
        let mut row = Vec::new();
        let mut field = String::new();
        let (mut is_quoted, mut is_start) = (false, true);
        while let Some(char) = chars.next_if(|char| is_quoted || !matches!(char, '\r' | '\n')) {
            match char {
                '"' if is_quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
                '"' if is_quoted => is_quoted = false,
                '"' if is_start => is_quoted = true,
                _ if char == delimiter && !is_quoted => {
                    row.push(std::mem::take(&mut field));
                    is_start = true;
                    continue;
                }
                _ => field.push(char),
            }
            is_start = false;
        }
        row.push(field);
        rows.push(row);
    }
    rows
}
