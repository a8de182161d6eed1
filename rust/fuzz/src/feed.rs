//! The feed of a query: compared with lines and types that are computed from all values at once.

use std::collections::HashSet;
use std::fmt;

use forebay_core::feed::{Column, Feed};
use forebay_core::{Filter, ItemIndex, index_items};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::{Input, oracle};

/// Paths of the generated documents. The knobs choose which are named, and one bit that all fields are read.
const PATHS: [&str; 16] = [
    "id",
    "name",
    "a",
    "id.a",
    "name.id.a",
    "a.name",
    "failed",
    "é",
    "NAME",
    "a_2",
    "id.id",
    "value",
    "name.name",
    "ID.name.a",
    "_",
    "a.a",
];

/// Maximum depth of the values that are compared: types end at 16 levels, which is not simulated.
const MAX_DEPTH: usize = 14;

/// Maximum number of members of a struct.
const MAX_MEMBERS: usize = 256;

pub fn compare(Input { knobs, data }: Input<'_>) {
    let chosen = u16::from_le_bytes([knobs[0], knobs[1]]);
    let paths: Vec<Vec<String>> = PATHS
        .iter()
        .enumerate()
        .filter(|(number, _)| chosen >> number & 1 == 1)
        .map(|(_, path)| path.split('.').map(str::to_owned).collect())
        .collect();
    let Some(items) = compare_payload(data, (knobs[2] & 3 != 0).then_some(&paths[..])) else { return };
    // Items of a payload differ too much to make up a struct, so that members could be selected.
    let objects: Vec<&Node> = items.iter().filter(|item| matches!(item, Node::Object(_))).collect();
    let Some(first) = objects.get(usize::from(knobs[3]) % objects.len().max(1)) else { return };
    let others = objects.iter().take(usize::from(knobs[2] >> 6));
    let items: Vec<String> =
        std::iter::once(first).chain(others).map(|value| format!(r#"{{"a": {}}}"#, dump(value))).collect();
    let paths = [find_path(first, knobs[0]), find_path(first, knobs[1])];
    compare_payload(
        format!("[{}]", items.join(", ")).as_bytes(),
        Some(&paths[..1 + usize::from(knobs[2] & 1)]),
    );
}

/// Returns the path of a member of the field `a`, if that is this value.
fn find_path(mut value: &Node, knob: u8) -> Vec<String> {
    let (mut path, mut rest) = (vec!["a".to_owned()], usize::from(knob));
    while let Node::Object(members) = value
        && let Some((key, member)) = members.get(rest % (members.len() + 1))
    {
        path.push(if rest & 64 == 0 { key.clone() } else { key.to_uppercase() });
        rest /= members.len() + 1;
        value = member;
    }
    path
}

fn dump(node: &Node) -> String {
    let dump_text = |text: &String| serde_json::to_string(text).expect("a text");
    match node {
        Node::Null => "null".to_owned(),
        Node::Bool(value) => value.to_string(),
        Node::Number(text) => text.clone(),
        Node::Text(text) => dump_text(text),
        Node::Array(items) => format!("[{}]", items.iter().map(dump).collect::<Vec<_>>().join(", ")),
        Node::Object(members) => {
            let members = members.iter().map(|(key, value)| format!("{}: {}", dump_text(key), dump(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns the items of the payload if they were compared.
fn compare_payload(data: &[u8], paths: Option<&[Vec<String>]>) -> Option<Vec<Node>> {
    let index = index_items(data, None, false).ok()?;
    let feed = Feed::new(paths);
    let Some((lines, columns)) = run(data, &index, &feed) else {
        assert!(!is_valid(data), "an error for valid JSON");
        return None;
    };
    let items = read_items(data, &index)?;
    let lines: Vec<&str> = std::str::from_utf8(&lines).expect("lines are UTF-8").lines().collect();
    assert_eq!(lines.len(), items.len());
    let lines: Vec<Node> = lines.into_iter().map(|line| parse(line).expect("a line is JSON")).collect();
    check(&items, paths, &lines, &columns);
    let mut skipped = feed.skipped().expect("not too many keys");
    skipped.sort();
    assert_eq!(skipped, naive_skipped(&items, paths));
    Some(items)
}

fn is_valid(data: &[u8]) -> bool {
    oracle::is_json(data) || oracle::rows(data).is_some()
}

fn run(data: &[u8], index: &ItemIndex, feed: &Feed) -> Option<(Vec<u8>, Vec<Column>)> {
    for _ in 0..4 {
        let (mut lines, mut block) = (Vec::new(), 0);
        while let Some(chunk) = index.chunk(block, 0) {
            block += chunk.block_count;
            let bytes = &data[chunk.start as usize..chunk.end as usize];
            lines.append(&mut feed.write(bytes, index, chunk.first).ok()?);
        }
        if let Some(columns) = feed.finish(index) {
            return Some((lines, columns));
        }
    }
    panic!("the feed does not end");
}

/// Returns all items; `None` if a text in them cannot be decoded, or they are nested deeply.
fn read_items(data: &[u8], index: &ItemIndex) -> Option<Vec<Node>> {
    if !is_valid(data) {
        return None;
    }
    let all = Filter::parse(r#"{"no such field": {"exists": false}}"#, &[]).expect("a condition");
    let (mut items, mut block) = (Vec::new(), 0);
    while let Some(chunk) = index.chunk(block, 0) {
        block += chunk.block_count;
        let bytes = &data[chunk.start as usize..chunk.end as usize];
        let content = all.select(bytes, index, &chunk, 0, usize::MAX).expect("all items").content;
        let Some(Node::Array(mut content)) = parse(std::str::from_utf8(&content).ok()?) else { return None };
        items.append(&mut content);
    }
    items.iter().all(|item| depth(item) <= MAX_DEPTH).then_some(items)
}

/// A value, with numbers as they are written and all members, also those with equal keys.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
}

fn parse(text: &str) -> Option<Node> {
    let text = text.trim();
    Some(match text.bytes().next()? {
        b'n' => Node::Null,
        b't' | b'f' => Node::Bool(text == "true"),
        b'"' => Node::Text(serde_json::from_str(text).ok()?),
        b'[' => {
            let items: Vec<Box<RawValue>> = serde_json::from_str(text).ok()?;
            Node::Array(items.iter().map(|item| parse(item.get())).collect::<Option<_>>()?)
        }
        b'{' => {
            let Members(members) = serde_json::from_str(text).ok()?;
            let members = members.into_iter().map(|(key, value)| Some((key, parse(value.get())?)));
            Node::Object(members.collect::<Option<_>>()?)
        }
        _ => Node::Number(text.to_owned()),
    })
}

struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

fn depth(node: &Node) -> usize {
    match node {
        Node::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Node::Object(members) => 1 + members.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
        _ => 0,
    }
}

/// A field of the items: its key, `None` for items that are not objects, and the paths below it.
struct Field<'a> {
    key: Option<&'a str>,
    paths: Vec<&'a [String]>,
    /// All values, also those that another one with the same key replaces.
    values: Vec<&'a Node>,
}

fn check(items: &[Node], paths: Option<&[Vec<String>]>, lines: &[Node], columns: &[Column]) {
    let fields = naive_fields(items, paths);
    let names = naive_names(items, &fields);
    assert_eq!(
        columns.iter().map(|column| &column.name).collect::<Vec<_>>(),
        names.iter().collect::<Vec<_>>()
    );
    for (field, column) in fields.iter().zip(columns) {
        let whole_type = sql_type(&field.values);
        let is_whole = field.paths.iter().any(|path| path.is_empty());
        let mut selection = &field.paths[..];
        let mut selected = None;
        let as_text = field.values.iter().any(|value| has_long_floats(value)) || has_decimals(&field.values);
        let types = if as_text {
            let is_number = field.values.iter().all(|value| matches!(value, Node::Number(_) | Node::Null));
            if is_number && whole_type != "JSON" {
                (whole_type.clone(), whole_type)
            } else {
                ("JSON".to_owned(), "VARCHAR".to_owned())
            }
        } else {
            selected = selected_type(&field.values, &field.paths).filter(|_| !is_whole);
            let one = selected.clone().unwrap_or(whole_type);
            (one.clone(), one)
        };
        if selected.is_none() {
            selection = &[];
        }
        assert_eq!((&column.sql_type, &column.read_type), (&types.0, &types.1), "{:?}", field.key);
        for (item, line) in items.iter().zip(lines) {
            let expected = last_value(item, field.key).filter(|value| **value != Node::Null);
            let expected = expected.map(|value| select(value, selection));
            let got = match last_value(line, Some(&column.key)) {
                Some(Node::Text(text)) if as_text => parse(text),
                got => got.cloned(),
            };
            assert_eq!(got, expected, "{:?}", field.key);
        }
    }
    // Nothing else is in the lines.
    let known: HashSet<&str> = columns.iter().map(|column| column.key.as_str()).collect();
    for line in lines {
        let Node::Object(members) = line else { panic!("a line is an object") };
        assert!(members.iter().all(|(key, _)| known.contains(key.as_str())));
    }
}

/// Returns the value of a key, the last of several; without a key, an item that is not an object.
fn last_value<'a>(item: &'a Node, key: Option<&str>) -> Option<&'a Node> {
    match (item, key) {
        (Node::Object(members), Some(key)) => {
            members.iter().rev().find(|(other, _)| other == key).map(|(_, value)| value)
        }
        (Node::Object(_), None) | (_, Some(_)) => None,
        (item, None) => Some(item),
    }
}

/// Returns the fields that are kept, in the order in which they first occur.
fn naive_fields<'a>(items: &'a [Node], paths: Option<&'a [Vec<String>]>) -> Vec<Field<'a>> {
    let mut fields: Vec<Field<'a>> = Vec::new();
    let mut add = |key: Option<&'a str>, value: &'a Node| {
        if let Some(field) = fields.iter_mut().find(|field| field.key == key) {
            field.values.push(value);
        } else if let Some(paths) = paths_of(key.unwrap_or("value"), paths) {
            fields.push(Field { key, paths, values: vec![value] });
        }
    };
    for item in items {
        match item {
            Node::Object(members) => members.iter().for_each(|(key, value)| add(Some(key), value)),
            item => add(None, item),
        }
    }
    fields
}

/// Returns the paths below a key, `None` if it is not kept.
fn paths_of<'a>(key: &str, paths: Option<&'a [Vec<String>]>) -> Option<Vec<&'a [String]>> {
    let Some(paths) = paths else { return Some(vec![&[]]) };
    let name = column_name(key).to_lowercase();
    let is_meant = |path: &&Vec<String>| {
        let other = path[0].to_lowercase();
        other == name
            || other.rsplit_once('_').is_some_and(|(base, number)| {
                base == name && !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit())
            })
    };
    let paths: Vec<&[String]> = paths.iter().filter(is_meant).map(|path| &path[1..]).collect();
    (!paths.is_empty()).then_some(paths)
}

fn column_name(key: &str) -> String {
    if key.is_empty() { "_".to_owned() } else { key.replace('\0', "\u{fffd}") }
}

fn naive_names(items: &[Node], fields: &[Field<'_>]) -> Vec<String> {
    let taken: HashSet<String> = items
        .iter()
        .flat_map(|item| if let Node::Object(members) = item { &members[..] } else { &[] })
        .map(|(key, _)| key.to_lowercase())
        .chain(["value".to_owned()])
        .collect();
    let mut names: Vec<String> = Vec::new();
    for field in fields {
        let name = column_name(field.key.unwrap_or("value"));
        let is_used = |name: &str| names.iter().any(|other| other.to_lowercase() == name.to_lowercase());
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let free = numbered.filter(|name| !taken.contains(&name.to_lowercase()));
        let name = std::iter::once(name.clone()).chain(free).find(|name| !is_used(name));
        names.extend(name);
    }
    names
}

fn naive_skipped(items: &[Node], paths: Option<&[Vec<String>]>) -> Vec<String> {
    let keys = items
        .iter()
        .flat_map(|item| if let Node::Object(members) = item { &members[..] } else { &[] })
        .map(|(key, _)| key.as_str())
        .chain(["value"]);
    let skipped =
        keys.filter(|key| paths_of(key, paths).is_none()).map(|key| column_name(key).to_lowercase());
    let mut skipped: Vec<String> = skipped.collect::<HashSet<_>>().into_iter().collect();
    skipped.sort();
    skipped
}

/// Returns a value with the last of equal keys, and without members that are not on the paths.
fn select(node: &Node, paths: &[&[String]]) -> Node {
    match node {
        Node::Array(items) => Node::Array(items.iter().map(|item| select(item, &[])).collect()),
        Node::Object(members) => {
            let mut selected: Vec<(String, Node)> = Vec::new();
            for (key, _) in members {
                let below = paths_below(key, paths);
                let is_kept =
                    paths.is_empty() || paths.iter().any(|path| path.is_empty()) || !below.is_empty();
                if is_kept && selected.iter().all(|(other, _)| other != key) {
                    let value = last_value(node, Some(key)).expect("a member");
                    selected.push((key.clone(), select(value, &below)));
                }
            }
            Node::Object(selected)
        }
        node => node.clone(),
    }
}

fn paths_below<'a>(key: &str, paths: &[&'a [String]]) -> Vec<&'a [String]> {
    let is_whole = paths.iter().any(|path| path.is_empty());
    let below = paths.iter().filter(|path| !is_whole && path[0].eq_ignore_ascii_case(key));
    let below: Vec<&[String]> = below.map(|path| &path[1..]).collect();
    if below.iter().any(|path| path.is_empty()) { vec![&[]] } else { below }
}

fn sql_type(values: &[&Node]) -> String {
    let values: Vec<&Node> = values.iter().copied().filter(|value| **value != Node::Null).collect();
    let all = |test: fn(&Node) -> bool| values.iter().all(|value| test(value));
    let json = || "JSON".to_owned();
    if all(|value| matches!(value, Node::Text(_))) {
        "VARCHAR".to_owned()
    } else if all(|value| matches!(value, Node::Bool(_))) {
        "BOOLEAN".to_owned()
    } else if all(|value| matches!(value, Node::Number(_))) {
        number_type(&values).unwrap_or_else(json)
    } else if all(|value| matches!(value, Node::Array(_))) {
        let items =
            values.iter().flat_map(|value| if let Node::Array(items) = value { &items[..] } else { &[] });
        format!("{}[]", sql_type(&items.collect::<Vec<_>>()))
    } else {
        selected_type(&values, &[]).unwrap_or_else(json)
    }
}

/// Returns the type of a struct with the members on the paths, or all if there are none.
fn selected_type(values: &[&Node], paths: &[&[String]]) -> Option<String> {
    if paths.iter().any(|path| path.is_empty()) {
        return Some(sql_type(values));
    }
    let mut members: Vec<(&str, Vec<&Node>)> = Vec::new();
    for value in values {
        let object = match value {
            Node::Object(object) => object,
            Node::Null => continue,
            _ => return None,
        };
        for (key, value) in object {
            match members.iter_mut().find(|(other, _)| other == key) {
                Some((_, values)) => values.push(value),
                None => members.push((key, vec![value])),
            }
        }
    }
    let names: HashSet<String> = members.iter().map(|(name, _)| name.to_lowercase()).collect();
    let is_named = members.iter().all(|(name, _)| !name.is_empty() && !name.contains('\0'));
    let has_path = |path: &&[String]| members.iter().any(|(name, _)| path[0].eq_ignore_ascii_case(name));
    if names.len() < members.len()
        || !is_named
        || members.is_empty()
        || members.len() > MAX_MEMBERS
        || !paths.iter().all(has_path)
    {
        return None;
    }
    let mut types = Vec::new();
    for (name, values) in &members {
        let below = paths_below(name, paths);
        if !paths.is_empty() && below.is_empty() {
            continue;
        }
        let member_type = if paths.is_empty() { sql_type(values) } else { selected_type(values, &below)? };
        types.push(format!("\"{}\" {member_type}", name.replace('"', "\"\"")));
    }
    Some(format!("STRUCT({})", types.join(", ")))
}

fn number_type(values: &[&Node]) -> Option<String> {
    let numbers = values.iter().map(|value| if let Node::Number(text) = value { text.as_str() } else { "0" });
    let numbers: Vec<&str> = numbers.collect();
    let whole = numbers.iter().map(|text| count_digits(text.split(['.', 'e', 'E']).next())).max()?;
    if numbers.iter().all(|text| is_integer(text)) {
        let is_bigint = numbers.iter().all(|text| text.parse::<i64>().is_ok());
        let wide = (whole <= 38).then_some("HUGEINT");
        return if is_bigint { Some("BIGINT") } else { wide }.map(str::to_owned);
    }
    if numbers.iter().all(|text| is_double(text)) {
        return Some("DOUBLE".to_owned());
    }
    let scale = numbers.iter().map(|text| count_digits(text.split(['.', 'e', 'E']).nth(1))).max()?;
    let has_exponents = numbers.iter().any(|text| text.contains(['e', 'E']));
    (!has_exponents && whole + scale <= 38).then(|| format!("DECIMAL({},{scale})", whole + scale))
}

fn count_digits(text: Option<&str>) -> usize {
    text.unwrap_or_default().bytes().filter(u8::is_ascii_digit).count()
}

fn is_integer(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

/// Whether a double, written with as many or as few digits, is this number.
fn is_double(text: &str) -> bool {
    let Ok(value) = text.parse::<f64>() else { return false };
    if is_integer(text) {
        // Exact, and the same as the double is printed.
        return text.parse::<i128>().is_ok_and(|number| {
            number == 0
                || (format!("{value:.0}") == number.to_string() && value.to_string() == number.to_string())
        });
    }
    let Some(number) = scientific(text) else { return false };
    let digits = number.0.len().max(1);
    value.is_finite()
        && (scientific(&format!("{:.*e}", digits - 1, value.abs())).as_ref() == Some(&number)
            || scientific(&format!("{:e}", value.abs())).as_ref() == Some(&number))
}

/// Returns the digits of a number without zeros around them, and the power of ten of the first one.
fn scientific(text: &str) -> Option<(String, i64)> {
    let text = text.trim_start_matches('-');
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let zeros = digits.len() - significant.len();
    if significant.is_empty() {
        return Some((String::new(), 0));
    }
    let power = exponent.parse::<i64>().ok()?.checked_add(whole.len() as i64 - zeros as i64)?;
    Some((significant.trim_end_matches('0').to_owned(), power))
}

/// Whether numbers in one place need a type that DuckDB reads from text only.
fn has_decimals(values: &[&Node]) -> bool {
    let values: Vec<&Node> = values.iter().copied().filter(|value| **value != Node::Null).collect();
    let numbers: Vec<&str> = values
        .iter()
        .filter_map(|value| if let Node::Number(text) = value { Some(text.as_str()) } else { None })
        .collect();
    if numbers.len() == values.len()
        && numbers.iter().any(|text| !is_integer(text))
        && numbers.iter().any(|text| !is_double(text))
    {
        return true;
    }
    let mut items = Vec::new();
    let mut members: Vec<(&str, Vec<&Node>)> = Vec::new();
    for value in values {
        match value {
            Node::Array(inner) => items.extend(inner),
            Node::Object(object) => {
                for (key, value) in object {
                    match members.iter_mut().find(|(other, _)| other == key) {
                        Some((_, values)) => values.push(value),
                        None => members.push((key, vec![value])),
                    }
                }
            }
            _ => {}
        }
    }
    let is_struct = members.len() <= MAX_MEMBERS;
    (!items.is_empty() && has_decimals(&items))
        || (is_struct && members.iter().any(|(_, values)| has_decimals(values)))
}

fn has_long_floats(node: &Node) -> bool {
    match node {
        Node::Number(text) => !is_integer(text) && !is_double(text),
        Node::Array(items) => items.iter().any(has_long_floats),
        Node::Object(members) => members.iter().any(|(_, value)| has_long_floats(value)),
        _ => false,
    }
}
