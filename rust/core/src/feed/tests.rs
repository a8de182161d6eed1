use super::*;
use crate::index::index_items;
use proptest::prelude::*;
use serde_json::{Map, Value};

fn split_paths(paths: &[&str]) -> Vec<Vec<String>> {
    paths.iter().map(|path| path.split('.').map(str::to_owned).collect()).collect()
}

/// Feeds items, each in a chunk of its own, in the given order. Returns the line of each item, and the columns.
fn feed(items: &[String], order: &[usize], paths: Option<&[&str]>) -> (Vec<Map<String, Value>>, Vec<Column>) {
    let index = index_items(b"[0]", None, true).unwrap();
    let feed = Feed::new(paths.map(split_paths).as_deref());
    loop {
        let mut lines = vec![Map::new(); items.len()];
        for &number in order {
            let line = feed.write(items[number].as_bytes(), &index, number as u64).unwrap();
            assert_eq!(memchr::memchr_iter(b'\n', &line).count(), 1, "one line");
            lines[number] = serde_json::from_slice(&line).unwrap();
        }
        if let Some(columns) = feed.finish(&index) {
            return (lines, columns);
        }
    }
}

/// Returns the value of a column in a line, as it is after the cast to the column's type.
fn cast(line: &Map<String, Value>, column: &Column) -> Value {
    match line.get(&column.key) {
        // DuckDB reads decimals exactly from text only.
        Some(Value::String(text))
            if column.read_type != column.sql_type || column.sql_type.starts_with("DECIMAL") =>
        {
            serde_json::from_str(text).unwrap()
        }
        value => value.cloned().unwrap_or_default(),
    }
}

/// Reference: the type of values, from all of them at once.
fn naive_type(values: &[&Value]) -> String {
    let values: Vec<_> = values.iter().copied().filter(|value| !value.is_null()).collect();
    let all = |test: fn(&Value) -> bool| values.iter().all(|value| test(value));
    if all(Value::is_string) {
        "VARCHAR".to_owned()
    } else if all(Value::is_boolean) {
        "BOOLEAN".to_owned()
    } else if all(Value::is_i64) {
        "BIGINT".to_owned()
    } else if all(Value::is_number) {
        "NUMBER".to_owned()
    } else if all(Value::is_array) {
        let items: Vec<_> = values.iter().flat_map(|value| value.as_array().unwrap()).collect();
        format!("{}[]", naive_type(&items))
    } else if all(Value::is_object) {
        let mut keys: Vec<&String> = Vec::new();
        for key in values.iter().flat_map(|value| value.as_object().unwrap().keys()) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let lower: HashSet<_> = keys.iter().map(|key| key.to_lowercase()).collect();
        if keys.is_empty() || lower.len() < keys.len() || keys.iter().any(|key| !is_identifier(key)) {
            return "JSON".to_owned();
        }
        let field = |key: &&String| {
            let members: Vec<_> = values.iter().filter_map(|value| value.get(key.as_str())).collect();
            format!("\"{}\" {}", key.replace('"', "\"\""), naive_type(&members))
        };
        format!("STRUCT({})", keys.iter().map(field).collect::<Vec<_>>().join(", "))
    } else {
        "JSON".to_owned()
    }
}

proptest! {
    #[test]
    fn every_value_and_type_is_that_of_a_naive_reader(
        values in prop::collection::vec(crate::testing::json(), 1..8),
        others in prop::collection::vec(crate::testing::json(), 1..8),
        is_pretty: bool,
    ) {
        let items: Vec<Value> =
            values.iter().zip(others.iter().cycle()).map(|(a, b)| serde_json::json!({"a": a, "b\"": b})).collect();
        let texts: Vec<String> = items
            .iter()
            .map(|item| if is_pretty { serde_json::to_string_pretty(item) } else { serde_json::to_string(item) })
            .collect::<std::result::Result<_, _>>()
            .unwrap();
        // serde_json does not read every float back as it was.
        let items: Vec<Value> = texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        let forward: Vec<usize> = (0..items.len()).collect();
        let backward: Vec<usize> = forward.iter().rev().copied().collect();
        let (lines, columns) = feed(&texts, &forward, None);
        for column in &columns {
            for (line, item) in lines.iter().zip(&items) {
                prop_assert_eq!(&cast(line, column), &item[&column.name]);
            }
            let naive = naive_type(&items.iter().map(|item| &item[&column.name]).collect::<Vec<_>>());
            // Which of the types of numbers is right, the tests of `number` tell.
            if !naive.contains("NUMBER") && column.read_type == column.sql_type && !has_deep(&items) {
                prop_assert_eq!(&column.sql_type, &naive);
            }
        }
        // Neither the order of the chunks nor the fields beside it change a column, but for the order of new keys.
        let (other_lines, other_columns) = feed(&texts, &backward, Some(&["B\""]));
        for column in &other_columns {
            prop_assert_eq!(&column.name, "b\"");
            for (line, item) in other_lines.iter().zip(&items) {
                prop_assert_eq!(&cast(line, column), &item["b\""]);
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(data in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"[]{},:\"\\u1e.-ntf \n".to_vec())], 0..60)) {
        let index = index_items(b"[0]", None, true).unwrap();
        let feed = Feed::new(None);
        let _ = feed.write(&data, &index, 0);
        let _ = feed.write(&[b"{\"a\":", &data[..], b"}"].concat(), &index, 0);
        let _ = feed.finish(&index);
    }
}

/// Whether the values are nested more deeply than types are.
fn has_deep(values: &[Value]) -> bool {
    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }
    values.iter().any(|value| depth(value) > 12)
}

#[test]
fn decimals_beside_integers_that_no_double_holds_are_exact() {
    let items = [r#"{"a": 0.0}"#.to_owned(), r#"{"a": 28744096463812053}"#.to_owned()];
    let (lines, columns) = feed(&items, &[0, 1], None);
    assert!(columns[0].sql_type.starts_with("DECIMAL"), "{}", columns[0].sql_type);
    assert_eq!(lines[0][&columns[0].key], "0.0");
    assert_eq!(cast(&lines[1], &columns[0]), serde_json::json!(28_744_096_463_812_053_i64));
}

#[test]
fn the_last_of_equal_keys_counts() {
    let items =
        [r#"{"a": 1, "\u0061": {"b": 1, "b": 2, "c": 3}, "x": 1, "a": {"b": 1, "b": [2]}}"#.to_owned()];
    let (lines, columns) = feed(&items, &[0], None);
    assert_eq!(columns.iter().map(|column| &column.name).collect::<Vec<_>>(), ["a", "x"]);
    assert_eq!(cast(&lines[0], &columns[0]), serde_json::json!({"b": [2]}));
}

#[test]
fn fields_that_are_not_kept_are_known() {
    let index = index_items(b"[0]", None, true).unwrap();
    let feed = Feed::new(Some(&split_paths(&["ID"])));
    feed.write(br#"{"id": 1, "Name": 2}"#, &index, 0).unwrap();
    let mut skipped = feed.skipped().unwrap();
    skipped.sort();
    assert_eq!(skipped, ["name", "value"]);
    for number in 0..2000 {
        feed.write(format!("{{\"k{number}\": 1}}").as_bytes(), &index, 1).unwrap();
    }
    assert_eq!(feed.skipped(), None);
}

#[test]
fn only_selected_members_are_written() {
    let items = [
        r#"{"a": {"Id": 1, "x": {"y": [1], "\u007a": "\n", "y": [2]}, "other": 0}}"#,
        r#"{"a": {"x": null, "Id": null}}"#,
        r#"{"a": {}}"#,
    ];
    let items = items.map(str::to_owned);
    let both = r#"STRUCT("x" STRUCT("y" BIGINT[], "z" VARCHAR))"#;
    for (paths, value, sql_type) in [
        (&["a.x.y"][..], serde_json::json!({"x": {"y": [2]}}), r#"STRUCT("x" STRUCT("y" BIGINT[]))"#),
        (&["A.ID", "a.id"], serde_json::json!({"Id": 1}), r#"STRUCT("Id" BIGINT)"#),
        (&["A.X.Y", "a.x"], serde_json::json!({"x": {"y": [2], "z": "\n"}}), both),
        (&["a.x.z", "a_2.x.y"], serde_json::json!({"x": {"y": [2], "z": "\n"}}), both),
    ] {
        let (lines, columns) = feed(&items, &[0, 1, 2], Some(paths));
        assert_eq!(columns[0].sql_type, sql_type, "{paths:?}");
        assert_eq!(lines[0]["1"], value, "{paths:?}");
    }
    // The whole value, if a member is missing, or below a scalar, or if it is used whole as well.
    for paths in [&["a.x", "a.ghost"][..], &["a.x.z.q"], &["a.x.y.q"], &["a", "a.x"]] {
        assert_eq!(feed(&items, &[0, 1, 2], Some(paths)), feed(&items, &[0, 1, 2], None), "{paths:?}");
    }
    // The type of the whole value decides: these are JSON.
    for other in [r#"{"a": "text"}"#, r#"{"a": {"ID": 2}}"#, r#"{"a": {"other": 0.12345678901234567890}}"#] {
        let items = [items[0].clone(), other.to_owned()];
        let (lines, columns) = feed(&items, &[0, 1], Some(&["a.x.y"]));
        assert_eq!(columns[0].sql_type, "JSON");
        assert_eq!((lines, columns), feed(&items, &[0, 1], None), "{other}");
    }
}
