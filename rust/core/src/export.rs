//! Items as lines of NDJSON or rows of CSV.
//!
//! Each function takes a JSON array of items, as pages have them, so that a large payload is written a part at a time.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::csv::push_quoted;
use crate::error::{Error, Result};
use crate::escaping::push_string;
use crate::message;
use crate::ndjson::is_space;
use crate::reader::{Kind, Reader};
use crate::scan::{Isa, closing_quote};

/// The column of items that are not objects.
const VALUE_COLUMN: &str = "_value";

/// Returns the items of a JSON array as NDJSON. An item that has line breaks is written without white space, others
/// stay as they are.
pub fn to_ndjson(items: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(items.len());
    for_each_item(items, |reader| {
        let item = reader.skip()?;
        push_line(&items[item], &mut out);
        out.push(b'\n');
        Ok(())
    })?;
    Ok(out)
}

/// Returns the keys of the objects in a JSON array, each once, in the order in which they are first seen. Items
/// that are not objects have the key `_value`.
///
/// # Errors
/// `InvalidArgument` for more than `limit` keys.
pub fn csv_columns(items: &[u8], limit: usize) -> Result<Vec<String>> {
    let (mut columns, mut seen) = (Vec::new(), HashSet::new());
    let mut add = |name: Cow<'_, str>| {
        if !seen.contains(&*name) {
            if columns.len() == limit {
                let reason = format!("the items have more than {limit} fields, too many for CSV; use ndjson");
                return Err(Error::argument(reason));
            }
            seen.insert(name.clone().into_owned());
            columns.push(name.into_owned());
        }
        Ok(())
    };
    for_each_item(items, |reader| {
        if reader.kind()? != Kind::Object {
            reader.skip()?;
            return add(Cow::Borrowed(VALUE_COLUMN));
        }
        for_each_member(reader, |key, _| add(text(&items[key])))
    })?;
    Ok(columns)
}

/// Returns the items of a JSON array as rows of CSV (RFC 4180, but lines end in LF), without a header.
///
/// Texts are decoded, numbers are as they were spelled, and nested values are JSON. A null or missing field is
/// empty; an empty text is `""`. Of equal keys the first one counts.
pub fn to_csv<S: AsRef<str>>(items: &[u8], columns: &[S]) -> Result<Vec<u8>> {
    let positions: HashMap<&str, usize> =
        columns.iter().enumerate().map(|(position, name)| (name.as_ref(), position)).collect();
    let mut out = Vec::with_capacity(items.len());
    let mut cells: Vec<Option<Range<usize>>> = vec![None; columns.len()];
    for_each_item(items, |reader| {
        cells.fill(None);
        if reader.kind()? == Kind::Object {
            for_each_member(reader, |key, value| {
                if let Some(position) = positions.get(&*text(&items[key])) {
                    cells[*position].get_or_insert(value);
                }
                Ok(())
            })?;
        } else if let Some(position) = positions.get(VALUE_COLUMN) {
            cells[*position] = Some(reader.skip()?);
        } else {
            reader.skip()?;
        }
        let start = out.len();
        for (position, cell) in cells.iter().enumerate() {
            if position > 0 {
                out.push(b',');
            }
            if let Some(span) = cell {
                push_cell(&items[span.clone()], &mut out);
            }
        }
        if out.len() == start {
            // Readers skip empty lines.
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
        Ok(())
    })?;
    Ok(out)
}

/// Returns rows, a JSON array of arrays, as an array of objects with the names of the columns as keys.
///
/// # Errors
/// `InvalidJson` unless each row is an array with as many values as there are names, `InvalidArgument` for a result
/// larger than `max_bytes`.
pub fn name_rows<S: AsRef<str>>(rows: &[u8], names: &[S], max_bytes: usize) -> Result<Vec<u8>> {
    let quote_name = |name: &S| {
        let mut quoted = Vec::new();
        push_string(name.as_ref().as_bytes(), &mut quoted);
        quoted
    };
    let names: Vec<Vec<u8>> = names.iter().map(quote_name).collect();
    let mut out = vec![b'['];
    for_each_item(rows, |reader| {
        let start = reader.pos();
        let kind = reader.kind()?;
        if out.len() > 1 {
            out.push(b',');
        }
        out.push(b'{');
        reader.open();
        for (number, name) in names.iter().enumerate() {
            if kind != Kind::Array || !reader.next_item(number == 0)? {
                return Err(Error::json(start as u64, "expected a row with a value for each column"));
            }
            if number > 0 {
                out.push(b',');
            }
            out.extend_from_slice(name);
            out.push(b':');
            out.extend_from_slice(&rows[reader.skip()?]);
        }
        if kind != Kind::Array || reader.next_item(names.is_empty())? {
            return Err(Error::json(start as u64, "expected a row with a value for each column"));
        }
        out.push(b'}');
        if out.len() >= max_bytes {
            let reason = format!("the rows take more than {max_bytes} bytes; select fewer rows or columns");
            return Err(Error::argument(reason));
        }
        Ok(())
    })?;
    out.push(b']');
    Ok(out)
}

fn for_each_item(items: &[u8], mut act: impl FnMut(&mut Reader<'_>) -> Result<()>) -> Result<()> {
    let mut reader = Reader::new(items, Isa::detect());
    if reader.kind()? != Kind::Array {
        return Err(reader.fail("expected an array of items"));
    }
    reader.open();
    let mut is_first = true;
    while reader.next_item(is_first)? {
        is_first = false;
        act(&mut reader)?;
    }
    Ok(())
}

/// Calls `act` with the spans of each key, between its quotes, and its value.
fn for_each_member(
    reader: &mut Reader<'_>,
    mut act: impl FnMut(Range<usize>, Range<usize>) -> Result<()>,
) -> Result<()> {
    reader.open();
    let mut is_first = true;
    while let Some(key) = reader.next_key(is_first)? {
        is_first = false;
        act(key, reader.skip()?)?;
    }
    Ok(())
}

/// Decodes a raw string. A lone surrogate becomes U+FFFD: the output is UTF-8.
fn text(raw: &[u8]) -> Cow<'_, str> {
    match memchr::memchr(b'\\', raw) {
        None => String::from_utf8_lossy(raw),
        Some(_) => Cow::Owned(String::from_utf8_lossy(&message::unescape(raw)).into_owned()),
    }
}

/// Appends a value on one line.
fn push_line(value: &[u8], out: &mut Vec<u8>) {
    if memchr::memchr2(b'\n', b'\r', value).is_none() {
        return out.extend_from_slice(value);
    }
    let isa = Isa::detect();
    let mut rest = value;
    while let Some(&first) = rest.first() {
        let len = match first {
            b'"' => closing_quote(isa, &rest[1..]).map_or(rest.len(), |end| end + 2),
            _ if is_space(first) => {
                rest = &rest[1..];
                continue;
            }
            _ => rest.iter().position(|&byte| byte == b'"' || is_space(byte)).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(len);
        out.extend_from_slice(token);
        rest = after;
    }
}

fn push_cell(value: &[u8], out: &mut Vec<u8>) {
    match value {
        [b'"', content @ .., b'"'] => {
            let text = text(content);
            let needs_quotes = text.is_empty() || text.contains([',', '"', '\n', '\r']);
            if needs_quotes {
                push_quoted(text.as_bytes(), out)
            } else {
                out.extend_from_slice(text.as_bytes())
            }
        }
        [b'{' | b'[', ..] => {
            let mut line = Vec::new();
            push_line(value, &mut line);
            push_quoted(&line, out);
        }
        b"null" => {}
        _ => out.extend_from_slice(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    fn ndjson(items: &str) -> String {
        String::from_utf8(to_ndjson(items.as_bytes()).unwrap()).unwrap()
    }

    fn csv(items: &str) -> (String, String) {
        let columns = csv_columns(items.as_bytes(), 100).unwrap();
        (columns.join("|"), String::from_utf8(to_csv(items.as_bytes(), &columns).unwrap()).unwrap())
    }

    #[test]
    fn items_become_lines() {
        let items = "[ {\"a\": 1.50},\n {\n \"b\" : \"x\\n \\\" y\",\r\n \"c\": [ 1,\n2 ]},[],\"\",null , 7]";
        assert_eq!(ndjson(items), "{\"a\": 1.50}\n{\"b\":\"x\\n \\\" y\",\"c\":[1,2]}\n[]\n\"\"\nnull\n7\n");
        assert_eq!(ndjson("[]"), "");
    }

    #[test]
    fn items_become_rows() {
        let items = r#"[{"id": 12345678901234567890, "t": "a,b"}, {"t": "say \"hi\"\n", "n": null, "x": 1e5},
            {"id": "", "x": {"k":  [1,
            2]}, "id": 3}, 7, {}, {"\u0074": "\ud800é", "x": true}]"#;
        let (columns, rows) = csv(items);
        assert_eq!(columns, "id|t|n|x|_value");
        assert_eq!(
            rows,
            "12345678901234567890,\"a,b\",,,\n,\"say \"\"hi\"\"\n\",,1e5,\n\"\",,,\"{\"\"k\"\":[1,2]}\",\n,,,,7\n,,,,\n,\u{fffd}\u{fffd}\u{fffd}é,,true,\n"
        );
        assert_eq!(csv(r#"[{"a": null}, {"a": 1}, {}]"#).1, "\"\"\n1\n\"\"\n");
        assert_eq!(csv("[]"), (String::new(), String::new()));
    }

    #[test]
    fn rows_become_objects() {
        let rows = b"[[1, \"a\"], [ null,[2] ]]";
        assert_eq!(
            name_rows(rows, &["n", "t\""], 99).unwrap(),
            br#"[{"n":1,"t\"":"a"},{"n":null,"t\"":[2]}]"#
        );
        assert_eq!(name_rows(b"[]", &["n"], 2).unwrap(), b"[]");
        for names in [&["n"][..], &["n", "t", "u"], &[]] {
            assert!(name_rows(rows, names, 99).is_err());
        }
        assert!(name_rows(br#"[{"n": 1}]"#, &["n"], 99).is_err());
        assert!(name_rows(b"[1]", &["n"], 99).is_err());
        assert!(name_rows(b"[[1]]", &["n"], 8).is_err() && name_rows(b"[[1]]", &["n"], 9).is_ok());
    }

    #[test]
    fn too_many_columns_are_an_error() {
        let items = br#"[{"a": 1}, {"b": 1, "a": 2}, {"c": 1}]"#;
        assert_eq!(csv_columns(items, 3).unwrap(), ["a", "b", "c"]);
        assert!(matches!(csv_columns(items, 2).unwrap_err().kind, ErrorKind::InvalidArgument(_)));
    }

    #[test]
    fn anything_but_an_array_is_an_error() {
        for data in ["", "1", "{}", "[1", "[1,]", "[{\"a\" 1}]", "[{\"a\": 1]"] {
            assert!(csv_columns(data.as_bytes(), 9).is_err(), "{data}");
            assert!(to_csv(data.as_bytes(), &["a"]).is_err(), "{data}");
        }
    }

    /// Reference: reads CSV as Python's `csv` module does, with `None` for an empty cell without quotes.
    fn read_csv(text: &str) -> Vec<Vec<Option<String>>> {
        let (mut rows, mut row) = (Vec::new(), Vec::new());
        let mut chars = text.chars().peekable();
        while chars.peek().is_some() {
            let mut cell = None;
            if chars.next_if_eq(&'"').is_some() {
                let mut content = String::new();
                while let Some(char) = chars.next() {
                    match char {
                        '"' if chars.next_if_eq(&'"').is_none() => break,
                        char => content.push(char),
                    }
                }
                cell = Some(content);
            } else {
                while let Some(char) = chars.next_if(|char| !",\n".contains(*char)) {
                    cell.get_or_insert_with(String::new).push(char);
                }
            }
            row.push(cell);
            if chars.next() == Some('\n') {
                rows.push(std::mem::take(&mut row));
            }
        }
        rows
    }

    fn objects() -> impl Strategy<Value = Vec<Map<String, Value>>> {
        let member = (prop_oneof![Just("a".to_owned()), crate::testing::text()], crate::testing::json());
        prop::collection::vec(
            prop::collection::vec(member, 1..4).prop_map(|members| members.into_iter().collect()),
            0..6,
        )
    }

    proptest! {
        #[test]
        fn lines_are_the_items(values in prop::collection::vec(crate::testing::json(), 0..6)) {
            let value = Value::from(values);
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let lines = ndjson(&text);
                prop_assert_eq!(format!("[{}]", lines.trim_end().replace('\n', ",")), value.to_string());
                prop_assert!(lines.is_empty() || lines.ends_with('\n'));
            }
        }

        #[test]
        fn rows_are_the_items(objects in objects()) {
            let text = serde_json::to_string_pretty(&objects).unwrap();
            let columns = csv_columns(text.as_bytes(), 100).unwrap();
            let rows = read_csv(&String::from_utf8(to_csv(text.as_bytes(), &columns).unwrap()).unwrap());
            let cell = |value: &Value| match value {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                value => Some(value.to_string()),
            };
            prop_assert_eq!(rows.len(), objects.len());
            for (row, object) in rows.iter().zip(&objects) {
                for (name, found) in columns.iter().zip(row) {
                    let expected = object.get(name).and_then(cell);
                    // A row of one empty cell is written as an empty text, because empty lines are skipped.
                    let expected = if columns.len() == 1 { expected.or(Some(String::new())) } else { expected };
                    prop_assert_eq!(found, &expected);
                }
            }
            let mut names: Vec<&String> = objects.iter().flat_map(Map::keys).collect();
            names.dedup();
            prop_assert!(names.iter().all(|name| columns.contains(name)));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(
            value in crate::testing::json(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let mut data = format!("[{value}]").into_bytes();
            let at = at.index(data.len());
            data[at] = byte;
            for data in [&data[..], &data[..at]] {
                let _ = to_ndjson(data);
                let _ = csv_columns(data, 100).map(|columns| to_csv(data, &columns));
            }
        }
    }
}
