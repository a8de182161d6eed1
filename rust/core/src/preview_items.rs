//! Previews of a document with items: its first items whole, and the values beside them.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::escaping::Escaping;
use crate::ndjson::lines;
use crate::pointer::unescape;
use crate::reader::{Kind, Reader};
use crate::scan::Isa;
use crate::truncate::{Limits, push_minified, truncate};

/// Bytes of a value beside the items. A longer one is truncated.
const MAX_BESIDE_BYTES: usize = 96;
/// Smallest budget of `truncate` that suffices for any value.
const MIN_TRUNCATED_BYTES: usize = 13;
/// Objects around the items. Main collections are at most four deep.
const MAX_DEPTH: usize = 64;

/// Returns a preview of a document, and the number of whole items in it. `items_start` is the offset of the array or object that holds the items;
/// it is `None` for NDJSON, whose items are its lines.
///
/// The preview is JSON (or NDJSON) with as many whole items from the first on as fit. If not even the first
/// fits, it is truncated. The members of the objects around the items stay in place, truncated to 96 bytes
/// each. They take at most half of the budget, which scalars get first; those left out are counted by a last
/// member whose key is `...`, or more dots. An item on one line is shown as it is; in others, white space
/// between tokens is left out.
///
/// The preview takes at most `max_bytes`, and `max_escaped_bytes` once escaped. It is empty if nothing fits. What is
/// shown is validated; what is left out is not.
///
/// # Errors
/// `InvalidJson` if the structure is broken or something shown is not valid; `InvalidArgument` if no array or
/// object starts at `items_start`, which only objects may lead to, or if `escaping` is `Never`.
pub fn preview_items(
    document: &[u8],
    items_start: Option<u64>,
    max_bytes: u64,
    max_escaped_bytes: Option<u64>,
    escaping: Escaping,
) -> Result<(String, u64)> {
    if escaping == Escaping::Never {
        return Err(Error::argument("escape_levels must be 1 or 2, not 0"));
    }
    let limit = |max: u64| usize::try_from(max).unwrap_or(usize::MAX);
    let budget =
        Budget { bytes: limit(max_bytes), escaped: max_escaped_bytes.map_or(usize::MAX, limit), escaping };
    let (shown, count) = match items_start {
        None => show_lines(document, budget)?,
        Some(start) => show_document(document, limit(start), budget)?,
    };
    let text = String::from_utf8(shown)
        .map_err(|error| Error::json(error.utf8_error().valid_up_to() as u64, "not UTF-8"))?;
    Ok((text, count))
}

/// Bytes that are left, before and after escaping.
#[derive(Clone, Copy)]
struct Budget {
    bytes: usize,
    escaped: usize,
    escaping: Escaping,
}

impl Budget {
    /// Takes the bytes of a text, if there are enough.
    fn take(&mut self, text: &[u8]) -> bool {
        let escaped = self.escaping.escaped_len(text);
        let fits = text.len() <= self.bytes && escaped <= self.escaped;
        if fits {
            self.bytes -= text.len();
            self.escaped -= escaped;
        }
        fits
    }

    fn half(self) -> Self {
        Self { bytes: self.bytes / 2, escaped: self.escaped / 2, ..self }
    }

    fn without(self, rest: Self) -> Self {
        Self { bytes: self.bytes - rest.bytes, escaped: self.escaped - rest.escaped, ..self }
    }

    fn with(self, rest: Self) -> Self {
        Self { bytes: self.bytes + rest.bytes, escaped: self.escaped + rest.escaped, ..self }
    }
}

fn show_lines(document: &[u8], budget: Budget) -> Result<(Vec<u8>, u64)> {
    let mut items = lines(document).map(|line| Ok(Some((None, line))));
    show_items(document, || items.next().unwrap_or(Ok(None)), b'\n', budget)
}

fn show_document(document: &[u8], items_start: usize, mut budget: Budget) -> Result<(Vec<u8>, u64)> {
    let surroundings = Surroundings::read(document, items_start)?;
    let (open, close) = if surroundings.is_map { (b'{', b'}') } else { (b'[', b']') };
    let path: Vec<u8> = surroundings.levels.iter().flat_map(|level| quoted(document, &level.key)).collect();
    let frame = [path, b"{}".repeat(surroundings.levels.len()), vec![open, close]].concat();
    if !budget.take(&frame) {
        return Ok((Vec::new(), 0));
    }
    let beside = surroundings.show(document, &mut budget)?;

    let mut reader = Reader::at(document, items_start, Isa::detect());
    reader.open();
    let mut is_first = true;
    let next = || {
        let key = if surroundings.is_map {
            let Some(key) = reader.next_key(is_first)? else { return Ok(None) };
            Some(key)
        } else if reader.next_item(is_first)? {
            None
        } else {
            return Ok(None);
        };
        is_first = false;
        reader.take_value().map(|value| Some((key, value)))
    };
    let (items, count) = show_items(document, next, b',', budget)?;

    let mut out = Vec::new();
    for (level, beside) in surroundings.levels.iter().zip(&beside) {
        out.push(b'{');
        out.extend(&beside.before);
        out.extend(quoted(document, &level.key));
    }
    out.push(open);
    out.extend(items);
    out.push(close);
    for beside in beside.iter().rev() {
        out.extend(&beside.after);
        out.push(b'}');
    }
    Ok((out, count))
}

/// Returns the items that fit, joined by `separator`, and how many are whole. `next` returns the key, if the items have keys, and the value.
fn show_items(
    document: &[u8],
    mut next: impl FnMut() -> Result<Option<(Option<Range<usize>>, Range<usize>)>>,
    separator: u8,
    mut budget: Budget,
) -> Result<(Vec<u8>, u64)> {
    let (mut out, mut count) = (Vec::new(), 0);
    while let Some((key, value)) = next()? {
        let mut text = if out.is_empty() { Vec::new() } else { vec![separator] };
        text.extend(key.map(|key| quoted(document, &key)).unwrap_or_default());
        let value = &document[value];
        let start = text.len();
        push_value(value, &mut text);
        if budget.take(&text) {
            out.extend(text);
            count += 1;
        } else if out.is_empty() {
            text.truncate(start);
            return show_truncated(text, value, budget).map(|shown| (shown, 0));
        } else {
            break;
        }
    }
    Ok((out, count))
}

/// Returns a value truncated to the budget, after its key; empty if nothing fits.
fn show_truncated(key: Vec<u8>, value: &[u8], mut budget: Budget) -> Result<Vec<u8>> {
    if !budget.take(&key) || budget.bytes < MIN_TRUNCATED_BYTES {
        return Ok(Vec::new());
    }
    let mut found = None;
    let (mut low, mut high) = (MIN_TRUNCATED_BYTES, budget.bytes.min(value.len()));
    while low <= high {
        let middle = low.midpoint(high);
        let shown = truncate(value, &Limits::of_bytes(middle))?;
        if budget.clone().take(&shown) {
            found = Some(shown);
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    Ok(found.map_or_else(Vec::new, |shown| [key, shown].concat()))
}

/// Appends a value: as it is if it stands on one line, else without white space between its tokens.
fn push_value(value: &[u8], out: &mut Vec<u8>) {
    if memchr::memchr2(b'\n', b'\r', value).is_none() {
        return out.extend_from_slice(value);
    }
    push_minified(value, out);
}

/// Returns a key in its quotes, and a colon.
fn quoted(document: &[u8], key: &Range<usize>) -> Vec<u8> {
    [&document[key.start - 1..=key.end], b":"].concat()
}

/// The objects around the items.
struct Surroundings {
    /// From the root to the items.
    levels: Vec<Level>,
    is_map: bool,
}

/// An object around the items.
struct Level {
    /// The key that leads to the items.
    key: Range<usize>,
    /// Keys and values of the other members.
    members: Vec<(Range<usize>, Range<usize>)>,
    /// How many of them are before the one that leads to the items.
    before: usize,
}

impl Surroundings {
    fn read(document: &[u8], items_start: usize) -> Result<Self> {
        let isa = Isa::detect();
        let nothing = || Error::argument("no items start at items_start; index_items() says where they do");
        let mut reader = Reader::new(document, isa);
        let mut levels = Vec::new();
        let is_map = loop {
            let kind = reader.kind()?;
            if reader.pos() == items_start && matches!(kind, Kind::Array | Kind::Object) {
                break kind == Kind::Object;
            }
            if kind != Kind::Object || levels.len() == MAX_DEPTH {
                return Err(nothing());
            }
            reader.open();
            let mut members = Vec::new();
            let (key, value) = loop {
                let key = reader.next_key(members.is_empty())?.ok_or_else(nothing)?;
                let value = reader.skip()?;
                if value.contains(&items_start) {
                    break (key, value);
                }
                members.push((key, value));
            };
            reader = Reader::at(document, value.start, isa);
            levels.push(Level { key, before: members.len(), members });
        };
        reader.skip()?;
        for level in levels.iter_mut().rev() {
            while let Some(key) = reader.next_key(false)? {
                level.members.push((key, reader.skip()?));
            }
        }
        Ok(Self { levels, is_map })
    }

    /// Returns the members that fit: for each level, those before and those after the one that leads to the items.
    fn show(&self, document: &[u8], budget: &mut Budget) -> Result<Vec<Beside>> {
        let mut shown: Vec<Vec<Vec<u8>>> =
            self.levels.iter().map(|level| vec![Vec::new(); level.members.len()]).collect();
        let half = budget.half();
        let mut remaining = half;
        // Scalars first: they say the most in the fewest bytes.
        for is_scalar in [true, false] {
            'members: for (level, texts) in self.levels.iter().zip(&mut shown) {
                for ((key, value), text) in level.members.iter().zip(texts) {
                    if is_scalar == matches!(document.get(value.start), Some(b'{' | b'[')) {
                        continue;
                    }
                    let value = truncate(&document[value.clone()], &Limits::of_bytes(MAX_BESIDE_BYTES))?;
                    let member = [&quoted(document, key)[..], &value, b","].concat();
                    if !remaining.take(&member) {
                        break 'members;
                    }
                    *text = member;
                }
            }
        }
        *budget = budget.without(half).with(remaining);
        let mut beside = Vec::new();
        for (level, texts) in self.levels.iter().zip(shown) {
            let mut after: Vec<u8> = texts[level.before..].concat();
            let omitted = texts.iter().filter(|text| text.is_empty()).count();
            let marker = format!("\"{}\":{omitted},", level.marker(document));
            if omitted > 0 && budget.take(marker.as_bytes()) {
                after.extend_from_slice(marker.as_bytes());
            }
            // The comma goes before these members instead of after them.
            if after.pop().is_some() {
                after.insert(0, b',');
            }
            beside.push(Beside { before: texts[..level.before].concat(), after });
        }
        Ok(beside)
    }
}

/// The members of an object beside the items, with their commas.
struct Beside {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Level {
    /// Returns a key of dots that the object does not have.
    fn marker(&self, document: &[u8]) -> String {
        let keys = self.members.iter().map(|(key, _)| key).chain([&self.key]);
        let dots = keys.filter_map(|key| {
            let key = unescape(&document[key.clone()])?;
            key.bytes().all(|byte| byte == b'.').then_some(key.len())
        });
        ".".repeat(dots.max().map_or(3, |longest| 3.max(longest + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::index_items;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    fn show(document: &str, max_bytes: usize) -> String {
        let start = index_items(document.as_bytes(), None, true).unwrap().start();
        preview_items(document.as_bytes(), Some(start), max_bytes as u64, None, Escaping::Once).unwrap().0
    }

    #[test]
    fn whole_items_come_with_the_values_beside_them() {
        let document = r#"{"page": 1, "meta": {"a": [1, 2, 3]}, "orders": [{"id": 1}, {"id": 2}, {"id": 3}], "total": 3, "last": null}"#;
        let whole = r#"{"page":1,"meta":{"a":[1,2,3]},"orders":[{"id": 1},{"id": 2},{"id": 3}],"total":3,"last":null}"#;
        assert_eq!(show(document, 500), whole);
        assert_eq!(show(document, 66), r#"{"page":1,"orders":[{"id": 1},{"id": 2}],"total":3,"...":2}"#);
        assert_eq!(show(document, 31), r#"{"page":1,"orders":[],"...":3}"#);
        assert_eq!(show(document, 30), r#"{"orders":[{"id": 1}],"...":4}"#);
        assert_eq!(show(document, 13), r#"{"orders":[]}"#);
        assert_eq!(show(document, 12), "");
    }

    #[test]
    fn an_item_that_does_not_fit_is_truncated() {
        let document = json!([{"id": 7, "text": "lorem ipsum ".repeat(20)}]).to_string();
        assert_eq!(show(&document, 60), r#"[{"id":7,"text":"lorem ipsum lorem ipsum lorem ipsum l..."}]"#);
        assert_eq!(show(&document, 15), r#"[{"...":2}]"#);
        assert_eq!(show(&document, 14), "[]");
    }

    #[test]
    fn line_breaks_are_left_out() {
        let document = "[\n {\"id\": 1,\n  \"a\": \" x\\\" \\n\"},\n {\"id\": 2}\n]";
        assert_eq!(show(document, 500), "[{\"id\":1,\"a\":\" x\\\" \\n\"},{\"id\": 2}]");
    }

    #[test]
    fn entries_of_an_object_and_lines_are_items() {
        let map = br#"{"n": 2, "plugins": {"git": {"a": 1}, "x": {"a": 2}}}"#;
        let show = |document: &[u8], start, max| {
            preview_items(document, start, max, None, Escaping::Once).unwrap().0
        };
        assert_eq!(show(map, Some(20), 500), r#"{"n":2,"plugins":{"git":{"a": 1},"x":{"a": 2}}}"#);
        assert_eq!(show(map, Some(20), 46), r#"{"n":2,"plugins":{"git":{"a": 1}}}"#);
        let lines = b"{\"id\": 1}\r\n\n {\"id\": 2}\n{\"id\":";
        assert_eq!(show(lines, None, 23), "{\"id\": 1}\n{\"id\": 2}");
        assert_eq!(show(b"\"0123456789abcdef\"", None, 15), "\"0123456789...\"");
    }

    #[test]
    fn the_marker_is_a_key_of_its_own() {
        let document = format!(r#"{{"...":0,"\u002e...":[1,2,3],"a":"{}","b":2}}"#, "x".repeat(50));
        let shown = show(&document, 70);
        assert_eq!(shown, r#"{"...":0,"\u002e...":[1,2,3],".....":2}"#);
    }

    #[test]
    fn a_start_that_is_none_is_refused() {
        for (document, start) in
            [("[1]", 1), ("{\"a\":[1]}", 0), ("{\"a\":1}", 5), ("{\"a\":[[1]]}", 6), ("7", 0), ("{}", 9)]
        {
            let result = preview_items(document.as_bytes(), Some(start), 100, None, Escaping::Once);
            // An object may be a map of items.
            assert_eq!(result.is_ok(), start == 0 && document.starts_with('{'), "{document}");
        }
        assert!(preview_items(b"[1]", Some(0), 9, None, Escaping::Never).is_err());
        assert!(preview_items(b"[1", Some(0), 9, None, Escaping::Once).is_err());
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            crate::testing::text().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((crate::testing::text(), inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn escaped_len(text: &str, levels: u64) -> usize {
        let quote =
            |text: &str| serde_json::to_string(text).unwrap()[1..].strip_suffix('"').unwrap().to_owned();
        (0..levels).fold(text.to_owned(), |text, _| quote(&text)).len()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn shows_the_first_items_and_what_is_beside_them(
            items in prop::collection::vec(values(), 0..8),
            before in prop::collection::btree_map("k[a-c]", values(), 0..4),
            after in prop::collection::btree_map("l[a-c]", values(), 0..4),
            is_pretty in any::<bool>(),
            is_map in any::<bool>(),
        ) {
            let write = |value: &Value| {
                if is_pretty { serde_json::to_string_pretty(value).unwrap() } else { value.to_string() }
            };
            let member = |(key, value): (&String, &Value)| format!("{}:{}", Value::from(key.as_str()), write(value));
            let entries: Map<String, Value> = items.iter().enumerate().map(|(i, v)| (format!("e{i}"), v.clone())).collect();
            let collection = if is_map { Value::Object(entries) } else { Value::from(items.clone()) };
            let head = before.iter().map(|entry| member(entry) + ",").collect::<String>();
            let tail = after.iter().map(|entry| ",".to_owned() + &member(entry)).collect::<String>();
            let head = format!("{{{head}\"items\":");
            let document = format!("{head}{}{tail}}}", write(&collection));
            for levels in [1, 2] {
                let escaping = Escaping::from_levels(levels).unwrap();
                let largest = escaped_len(&document, levels) + 200;
                for max in (0..400).chain([largest, 2 * largest]) {
                    let (shown, count) = preview_items(
                        document.as_bytes(), Some(head.len() as u64), u64::MAX, Some(max as u64), escaping,
                    ).unwrap();
                    prop_assert!(escaped_len(&shown, levels) <= max, "{}", shown);
                    if shown.is_empty() {
                        prop_assert!(max < 20 * levels as usize, "{}", max);
                        continue;
                    }
                    let value: Value = serde_json::from_str(&shown).unwrap();
                    let found: Vec<&Value> = match &value["items"] {
                        Value::Array(items) => items.iter().collect(),
                        items => items.as_object().unwrap().values().collect(),
                    };
                    // A lone item may be truncated. Serde keeps the entries of an object sorted, as they are here.
                    let is_whole = found.iter().zip(&items).all(|(found, item)| *found == item);
                    prop_assert!(is_whole || found.len() == 1, "{}", shown);
                    let is_truncated = count == 0 && found.len() == 1;
                    prop_assert!(is_truncated || (is_whole && count == found.len() as u64), "{} {}", count, shown);
                    prop_assert!(max < largest || (is_whole && found.len() == items.len()), "{}", shown);
                    for (key, expected) in before.iter().chain(&after) {
                        let is_scalar = !expected.is_object() && !expected.is_array();
                        let found = value.get(key);
                        prop_assert!(found.is_some() || max < 2 * largest, "{} lacks {}", shown, key);
                        if is_scalar && expected.to_string().len() <= 64 {
                            prop_assert!(found.is_none_or(|found| found == expected), "{}", shown);
                        }
                    }
                }
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(
            data in prop::collection::vec(prop_oneof![
                any::<u8>(), Just(b'['), Just(b'{'), Just(b'"'), Just(b':'), Just(b','), Just(b'}'), Just(b']'), Just(b'\n'),
            ], 0..60),
            start in prop::option::of(0..70_u64),
        ) {
            if let Ok((text, _)) = preview_items(&data, start, 40, Some(40), Escaping::Twice) {
                prop_assert!(text.len() <= 40);
            }
        }
    }
}
