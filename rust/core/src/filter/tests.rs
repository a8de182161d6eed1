use std::fmt;

use proptest::prelude::*;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::Filter;
use crate::error::{Error, ErrorKind, Result};
use crate::index::{ItemIndex, Kind, index_items};
use crate::survey::Survey;

/// A parsed value that keeps repeated keys.
#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Scalar(Scalar),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

#[derive(Debug, Clone, PartialEq)]
enum Scalar {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
}

struct TreeVisitor;

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> std::result::Result<Tree, E> {
        Ok(Tree::Scalar(Scalar::Null))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> std::result::Result<Tree, E> {
        Ok(Tree::Scalar(Scalar::Bool(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> std::result::Result<Tree, E> {
        Ok(Tree::Scalar(Scalar::Number(value as f64)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> std::result::Result<Tree, E> {
        Ok(Tree::Scalar(Scalar::Number(value as f64)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> std::result::Result<Tree, E> {
        Ok(Tree::Scalar(Scalar::Number(value)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> std::result::Result<Tree, E> {
        Ok(Tree::Scalar(Scalar::Text(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Tree, A::Error> {
        let mut tree = Vec::new();
        while let Some(item) = items.next_element()? {
            tree.push(item);
        }
        Ok(Tree::Array(tree))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> std::result::Result<Tree, A::Error> {
        let mut tree = Vec::new();
        while let Some(member) = members.next_entry()? {
            tree.push(member);
        }
        Ok(Tree::Object(tree))
    }
}

fn tree(text: &str) -> Tree {
    serde_json::from_str(text).unwrap()
}

/// Collects the values of a field.
fn reach<'a>(value: &'a Tree, path: &[&str], out: &mut Vec<&'a Tree>) {
    let Some((key, rest)) = path.split_first() else {
        return out.push(value);
    };
    match value {
        Tree::Object(members) => {
            if let Some((_, member)) = members.iter().find(|(name, _)| name == key) {
                reach(member, rest, out);
            }
        }
        Tree::Array(items) => items.iter().for_each(|item| reach(item, path, out)),
        Tree::Scalar(_) => {}
    }
}

/// Reference: compares parsed values.
fn naive(item: &Tree, conditions: &Tree, has_cells: bool) -> bool {
    let Tree::Object(fields) = conditions else { panic!("{conditions:?}") };
    fields.iter().all(|(field, condition)| {
        let mut found = Vec::new();
        let path: Vec<&str> = match field.strip_prefix('/') {
            Some(pointer) => {
                reach(item, &[field], &mut found);
                pointer.split('/').collect()
            }
            None => field.split('.').collect(),
        };
        reach(item, &path, &mut found);
        match condition {
            Tree::Object(operators) => {
                operators.iter().all(|(operator, operand)| holds(operator, operand, &found, has_cells))
            }
            operand => holds("=", operand, &found, has_cells),
        }
    })
}

/// Returns the number that a cell is written as, without white space around it.
fn cell_number(cell: &str) -> Option<f64> {
    serde_json::from_str(cell).ok().filter(|_| cell.trim() == cell)
}

/// Replaces arrays by the scalars in them.
fn flatten<'a>(value: &'a Tree, out: &mut Vec<&'a Tree>) {
    match value {
        Tree::Array(items) => items.iter().for_each(|item| flatten(item, out)),
        value => out.push(value),
    }
}

fn holds(operator: &str, operand: &Tree, found: &[&Tree], has_cells: bool) -> bool {
    let mut flat = Vec::new();
    if !matches!(operator, "contains" | "exists") {
        found.iter().for_each(|value| flatten(value, &mut flat));
    }
    let found = if matches!(operator, "contains" | "exists") { found } else { &flat };
    let equal = |value: &Tree| match (value, operand) {
        (Tree::Scalar(Scalar::Text(cell)), Tree::Scalar(Scalar::Number(number))) if has_cells => {
            cell_number(cell).is_some_and(|cell| cell == *number)
        }
        (value, operand) => value == operand,
    };
    let any = |passes: &dyn Fn(&Tree) -> bool| found.iter().any(|value| passes(value));
    let order = |accepts: &dyn Fn(std::cmp::Ordering) -> bool| {
        any(&|value| {
            let ordering = match (value, operand) {
                (Tree::Scalar(Scalar::Number(left)), Tree::Scalar(Scalar::Number(right))) => {
                    left.partial_cmp(right)
                }
                (Tree::Scalar(Scalar::Text(left)), Tree::Scalar(Scalar::Text(right))) => {
                    Some(left.cmp(right))
                }
                (Tree::Scalar(Scalar::Text(cell)), Tree::Scalar(Scalar::Number(right))) if has_cells => {
                    cell_number(cell).and_then(|left| left.partial_cmp(right))
                }
                _ => None,
            };
            ordering.is_some_and(accepts)
        })
    };
    match (operator, operand) {
        ("=", _) => any(&equal),
        ("!=", _) => !any(&equal),
        ("<", _) => order(&|ordering| ordering.is_lt()),
        ("<=", _) => order(&|ordering| ordering.is_le()),
        (">", _) => order(&|ordering| ordering.is_gt()),
        (">=", _) => order(&|ordering| ordering.is_ge()),
        ("in", Tree::Array(operands)) => operands.iter().any(|operand| holds("=", operand, found, has_cells)),
        ("contains", _) => any(&|value| match (value, operand) {
            (Tree::Scalar(Scalar::Text(text)), Tree::Scalar(Scalar::Text(part))) => text.contains(part),
            (Tree::Array(items), operand) => items.contains(operand),
            _ => false,
        }),
        ("matches", Tree::Scalar(Scalar::Text(pattern))) => {
            // The patterns of these tests are literals, except for an anchor.
            any(&|value| match (value, pattern.strip_prefix('^')) {
                (Tree::Scalar(Scalar::Text(text)), Some(start)) => {
                    text.split('\n').any(|line| line.starts_with(start))
                }
                (Tree::Scalar(Scalar::Text(text)), None) => text.contains(pattern),
                _ => false,
            })
        }
        ("exists", Tree::Scalar(Scalar::Bool(exists))) => found.is_empty() != *exists,
        other => panic!("{other:?}"),
    }
}

/// Returns the numbers of the items that match, and checks that counts and selections agree.
fn run(data: &[u8], index: &ItemIndex, conditions: &str) -> Result<Vec<u64>> {
    let filter = Filter::parse(conditions, &index.column_names().unwrap_or_default())?;
    let mut numbers = Vec::new();
    for max_bytes in [0, u64::MAX] {
        let (mut block, mut found) = (0, Vec::new());
        while let Some(chunk) = index.chunk(block, max_bytes) {
            let bytes = &data[chunk.start as usize..chunk.end as usize];
            let counts = filter.count(bytes, index, &chunk)?;
            let all = filter.select(bytes, index, &chunk, 0, usize::MAX)?;
            assert_eq!(counts.len(), chunk.block_count);
            assert_eq!(counts.iter().sum::<u64>(), all.numbers.len() as u64);
            let items: Vec<Tree> = serde_json::from_slice(&all.content).unwrap();
            assert_eq!(items.len(), all.numbers.len());
            let part = filter.select(bytes, index, &chunk, 1, 2)?;
            assert_eq!(part.numbers, all.numbers.iter().copied().skip(1).take(2).collect::<Vec<_>>());
            found.extend(all.numbers);
            block += chunk.block_count;
        }
        assert!(max_bytes == 0 || found == numbers);
        numbers = found;
    }
    Ok(numbers)
}

fn run_array(data: &str, conditions: &str) -> Vec<u64> {
    run(data.as_bytes(), &index_items(data.as_bytes(), Some(""), true).unwrap(), conditions).unwrap()
}

fn naive_numbers(items: &[Tree], conditions: &str, has_cells: bool) -> Vec<u64> {
    let conditions = tree(conditions);
    let matching = items.iter().enumerate().filter(|(_, item)| naive(item, &conditions, has_cells));
    matching.map(|(number, _)| number as u64).collect()
}

#[test]
fn conditions_select_items() {
    let data = r#"[
        {"id": 1, "status": "failed", "total": 250.50, "customer": {"country": "DE"}, "tags": ["a", "b"]},
        {"id": 2, "status": "f\u0061iled", "total": 2e2, "customer": {"country": "FR"}, "tags": []},
        {"id": 9007199254740993, "status": null, "total": "250", "lines": [{"sku": "x"}, [{"sku": "y"}], 3]},
        7, "failed", ["failed", {"status": "failed"}], {"status": "ok", "status": "failed"}
    ]"#;
    for (conditions, expected) in [
        (r#"{"status": "failed"}"#, vec![0, 1, 5]),
        (r#"{"status": "failed", "customer.country": "DE", "total": {">": 200}}"#, vec![0]),
        (r#"{"status": {"!=": "failed"}}"#, vec![2, 3, 4, 6]),
        (r#"{"status": null}"#, vec![2]),
        (r#"{"tags": "b"}"#, vec![0]),
        (r#"{"tags": {"!=": "b", "exists": true}}"#, vec![1]),
        (r#"{"tags": {"matches": "^b"}}"#, vec![0]),
        (r#"{"tags": {"in": ["c", "a"]}}"#, vec![0]),
        (r#"{"status": {"exists": false}}"#, vec![3, 4]),
        (r#"{"status": {"exists": true, "in": ["ok", null]}}"#, vec![2, 6]),
        (r#"{"total": 200}"#, vec![1]),
        (r#"{"total": {">=": 200, "<": 250.5}}"#, vec![1]),
        (r#"{"total": {">": "2"}}"#, vec![2]),
        (r#"{"id": 9007199254740992}"#, vec![]),
        (r#"{"id": 9007199254740993.0}"#, vec![2]),
        (r#"{"tags": {"contains": "a"}}"#, vec![0]),
        (r#"{"tags": "a"}"#, vec![0]),
        (r#"{"status": {"contains": "aile"}}"#, vec![0, 1, 5]),
        (r#"{"status": {"matches": "^f.*d$"}}"#, vec![0, 1, 5]),
        (r#"{"lines.sku": "y"}"#, vec![2]),
        (r#"{"lines.sku": {"!=": "y"}}"#, vec![0, 1, 3, 4, 5, 6]),
        (r#"{"/customer/country": "FR"}"#, vec![1]),
        (r#"{"customer": {"exists": true}, "customer.country": "FR"}"#, vec![1]),
    ] {
        assert_eq!(run_array(data, conditions), expected, "{conditions}");
    }
}

#[test]
fn entries_of_a_map_have_their_key() {
    let data = r#"{"git": {"stars": 3, "on": true}, "sv\u006e": {"stars": 3}, "cvs": 3, "hg": {"_key": 1}, "x": "git"}"#;
    let index = index_items(data.as_bytes(), Some(""), true).unwrap();
    assert_eq!(index.kind(), Some(Kind::Map));
    for (conditions, expected) in [
        (r#"{"_key": "git"}"#, vec![0]),
        (r#"{"_key": "svn", "stars": 3.0}"#, vec![1]),
        (r#"{"_key": {"matches": "^.{3}$"}}"#, vec![0, 1, 2]),
        (r#"{"_value": 3}"#, vec![2]),
        (r#"{"_value": {"exists": true}}"#, vec![2, 3, 4]),
        (r#"{"stars": {"exists": true}}"#, vec![0, 1]),
    ] {
        assert_eq!(run(data.as_bytes(), &index, conditions).unwrap(), expected, "{conditions}");
    }
}

#[test]
fn cells_are_text_that_may_be_a_number() {
    let data = "id,a.b,\"na\"\"me\"\n1,x,y\n2.0,\"x\",\"y\"\"\"\n007,,fai\"led\n\"1\",fai\"\"led,\"a,\nb\"\nNaN,\"fai\"led,1e2,more\n";
    let mut survey = Survey::new(Some(false), Some(Kind::Csv));
    survey.feed(data.as_bytes());
    let index = survey.finish().items.unwrap();
    for (conditions, expected) in [
        (r#"{"id": 1}"#, vec![0, 3]),
        (r#"{"id": "1"}"#, vec![0, 3]),
        (r#"{"id": "1.0"}"#, vec![]),
        (r#"{"id": {">": 1}}"#, vec![1]),
        (r#"{"id": {"in": [2, "007"]}}"#, vec![1, 2]),
        (r#"{"a.b": "x"}"#, vec![0, 1]),
        (r#"{"a.b": "failed"}"#, vec![4]),
        (r#"{"a.b": ""}"#, vec![2]),
        (r#"{"na\"me": {"contains": "y\""}}"#, vec![1]),
        (r#"{"na\"me": {">=": 99.9}}"#, vec![4]),
        (r#"{"column_4": {"exists": true}}"#, vec![4]),
        (r#"{"id": {"!=": 1}}"#, vec![1, 2, 4]),
    ] {
        assert_eq!(run(data.as_bytes(), &index, conditions).unwrap(), expected, "{conditions}");
    }
}

#[test]
fn wrong_conditions_say_what_to_write() {
    let index = index_items(b"[{}]", None, true).unwrap();
    let many = format!("{{{}}}", (0..65).map(|i| format!("\"f{i}\": 1")).collect::<Vec<_>>().join(","));
    for (conditions, expected) in [
        ("[]", "where must be an object of conditions"),
        ("{}", "no conditions"),
        ("{\"a\": 1", "not valid JSON"),
        ("{\"a\": 01}", "not valid JSON"),
        ("{\"a\": 1} {}", "not valid JSON: expected the end"),
        (r#"{"a": ["x"]}"#, r#"{"in": [...]}"#),
        (r#"{"a": {}}"#, "the condition on \"a\" is empty"),
        (r#"{"a": {"in": []}}"#, "a non-empty list"),
        (r#"{"a": {"in": "x"}}"#, "list of values"),
        (r#"{"a": {"in": [[1]]}}"#, "\"in\" on \"a\" takes text, a number"),
        (r#"{"a": {"=": {}}}"#, "to compare a nested field, name it"),
        (r#"{"a": {">": true}}"#, "\">\" on \"a\" takes a number or a text"),
        (r#"{"a": {">": [1]}}"#, "a single value"),
        (r#"{"a": {"exists": 1}}"#, "true or false"),
        (r#"{"a": {"matches": 1}}"#, "a regular expression"),
        (r#"{"a": {"matches": "("}}"#, "unclosed group"),
        (r#"{"a": {"$gte": 1}}"#, "did you mean \">=\"?"),
        (r#"{"a": {"IN": [1]}}"#, "did you mean \"in\"?"),
        (r#"{"a": {"country": "DE"}}"#, "for a nested field, write \"a.country\"."),
        (r#"{"a": {"~": "DE"}}"#, "unknown operator \"~\" in the condition on \"a\". The operators are"),
        (r#"{"a..b": 1}"#, "empty key"),
        (r#"{"a": "\ud800"}"#, "surrogate"),
        (&many, "more than 64 conditions"),
        (&format!("{{\"a\": \"{}\"}}", "x".repeat(70_000)), "65536 are allowed"),
    ] {
        let error = run(b"[{}]", &index, conditions).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::InvalidArgument(_)), "{conditions}: {error:?}");
        assert!(error.to_string().contains(expected), "{conditions}: {error}");
        assert!(error.to_string().len() < 1000);
    }
}

#[test]
fn the_fields_of_conditions_are_listed() {
    let filter =
        Filter::parse(r#"{"a.b": {"exists": false}, "c": {"!=": 1, ">": 0}, "/d": null}"#, &[]).unwrap();
    let fields: Vec<_> = filter.fields().iter().map(|field| (&field.name[..], field.is_required)).collect();
    assert_eq!(fields, [("c", false), ("c", true), ("/d", true)]);
}

#[test]
fn arrays_nested_too_deeply_are_not_entered() {
    for (depth, expected) in [(100, vec![0]), (5000, vec![])] {
        let data = format!("[{{\"a\": {}{{\"b\": 1}}{}}}]", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(run_array(&data, r#"{"a.b": 1}"#), expected);
    }
}

#[test]
fn bytes_of_another_payload_are_refused() {
    let data = format!("[{}1]", "{\"a\": 1}, ".repeat(100));
    let index = index_items(data.as_bytes(), None, true).unwrap();
    let filter = Filter::parse(r#"{"a": 1}"#, &[]).unwrap();
    let chunk = index.chunk(0, u64::MAX).unwrap();
    let bytes = &data.as_bytes()[chunk.start as usize..];
    assert_eq!(filter.count(bytes, &index, &chunk).unwrap(), [100]);
    let expected = Error::index("the items are not where it says");
    for other in [&bytes[..50], b"", b"1]", &bytes[10..]] {
        assert_eq!(filter.count(other, &index, &chunk), Err(expected.clone()));
    }
}

/// Text of a JSON string, with escapes where none are needed.
fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[ab]",
        1 => Just("\\u0061".to_owned()),
        1 => Just("\\u00E9".to_owned()),
        1 => Just("é".to_owned()),
        1 => Just("\\n".to_owned()),
        1 => Just("\\/".to_owned()),
        1 => Just("\\\"".to_owned()),
        1 => Just("\\ud83d\\ude00".to_owned()),
        1 => Just("1".to_owned()),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn number() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "0",
        "-0",
        "1",
        "1.0",
        "10e-1",
        "0.5",
        "5E-1",
        "2",
        "-1",
        "100",
        "1e2",
        "9007199254740992",
    ])
    .prop_map(str::to_owned)
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        string(),
        number(),
        prop::sample::select(vec!["null", "true", "false"]).prop_map(str::to_owned)
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["\"a\"", "\"b\"", "\"\\u0061\"", "\"c\"", "\"/a\"", "\"a.b\""])
        .prop_map(str::to_owned)
}

/// An item, with repeated keys, white space and all kinds of values.
fn item() -> impl Strategy<Value = String> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            2 => prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            5 => prop::collection::vec((key(), inner), 0..5).prop_map(|members| {
                let members: Vec<String> = members.iter().map(|(key, value)| format!("{key} : {value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

fn condition() -> impl Strategy<Value = String> {
    let operator = prop_oneof![
        (prop::sample::select(vec!["=", "!=", "contains"]), scalar())
            .prop_map(|(name, value)| format!("\"{name}\": {value}")),
        (prop::sample::select(vec!["<", "<=", ">", ">="]), prop_oneof![string(), number()])
            .prop_map(|(name, value)| format!("\"{name}\": {value}")),
        prop::collection::vec(scalar(), 1..4).prop_map(|values| format!("\"in\": [{}]", values.join(","))),
        "\\^?[ab1]{1,2}".prop_map(|pattern| format!("\"matches\": \"{pattern}\"")),
        any::<bool>().prop_map(|exists| format!("\"exists\": {exists}")),
    ];
    prop_oneof![
        2 => scalar(),
        3 => prop::collection::vec(operator, 1..3).prop_map(|operators| format!("{{{}}}", operators.join(", "))),
    ]
}

fn conditions() -> impl Strategy<Value = String> {
    let field = prop::sample::select(vec!["a", "b", "a.b", "a.a", "b.a.c", "/a", "/a/b", "c"]);
    prop::collection::vec((field, condition()), 1..4).prop_map(|fields| {
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
        format!("{{{}}}", fields.join(", "))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn matches_a_loop_over_parsed_items(items in prop::collection::vec(item(), 0..8), conditions in conditions()) {
        let trees: Vec<Tree> = items.iter().map(|item| tree(item)).collect();
        let expected = naive_numbers(&trees, &conditions, false);
        let data = format!("[{}]", items.join(" ,\n"));
        prop_assert_eq!(run_array(&data, &conditions), &expected[..], "{} {}", data, conditions);
        let lines = format!("{}\n[]\n", items.join("\n"));
        let index = index_items(lines.as_bytes(), None, true).unwrap();
        if index.kind() == Some(Kind::Ndjson) {
            let trees: Vec<Tree> = trees.into_iter().chain([Tree::Array(Vec::new())]).collect();
            let expected = naive_numbers(&trees, &conditions, false);
            prop_assert_eq!(run(lines.as_bytes(), &index, &conditions).unwrap(), expected);
        }
    }

    #[test]
    fn cells_match_a_loop_over_rows(
        rows in prop::collection::vec(prop::collection::vec("([ab1]|é|\"\"|,|\n){0,3}|-?[0-2](\\.[05])?(e1)?", 1..4), 1..6),
        conditions in conditions(),
    ) {
        let quoted = |row: &Vec<String>| {
            let cells = row.iter().map(|cell| if cell.contains(['"', ',', '\n']) { format!("\"{cell}\"") } else { cell.clone() });
            cells.collect::<Vec<_>>().join(",")
        };
        // An empty line is no row.
        let rows: Vec<_> = rows.into_iter().filter(|row| !quoted(row).is_empty()).collect();
        let data = format!("a,b,c\n{}\n", rows.iter().map(quoted).collect::<Vec<_>>().join("\n"));
        let trees: Vec<Tree> = rows.iter().map(|row| {
            let cells = row.iter().map(|cell| Tree::Scalar(Scalar::Text(cell.replace("\"\"", "\""))));
            Tree::Object(["a", "b", "c"].into_iter().map(str::to_owned).zip(cells).collect())
        }).collect();
        let mut survey = Survey::new(Some(false), Some(Kind::Csv));
        survey.feed(data.as_bytes());
        let index = survey.finish().items.unwrap();
        if index.is_empty() {
            return Ok(());
        }
        let expected = naive_numbers(&trees, &conditions, true);
        prop_assert_eq!(run(data.as_bytes(), &index, &conditions).unwrap(), expected, "{} {}", data, conditions);
    }

    #[test]
    fn arbitrary_conditions_do_not_panic(text in "[{}\\[\\]\":,a<=in0-9\\\\ ]{0,30}") {
        let _ = Filter::parse(&text, &[]);
    }

    #[test]
    fn broken_items_do_not_panic(
        items in prop::collection::vec(item(), 1..4), conditions in conditions(),
        at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut data = format!("[{}]", items.join(",")).into_bytes();
        let index = index_items(&data, Some(""), true).unwrap();
        let at = at.index(data.len());
        data[at] = byte;
        let _ = run_broken(&data, &index, &conditions);
    }
}

fn run_broken(data: &[u8], index: &ItemIndex, conditions: &str) -> Result<()> {
    let filter = Filter::parse(conditions, &[])?;
    let Some(chunk) = index.chunk(0, u64::MAX) else { return Ok(()) };
    let bytes = &data[chunk.start as usize..chunk.end as usize];
    let counts = filter.count(bytes, index, &chunk)?;
    let selection = filter.select(bytes, index, &chunk, 0, usize::MAX)?;
    assert_eq!(counts.iter().sum::<u64>(), selection.numbers.len() as u64);
    Ok(())
}
