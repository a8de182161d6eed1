use proptest::prelude::*;

use super::super::{Options, Pattern, search};
use crate::Pointer;
use crate::index::{ItemIndex, Kind, index_items};
use crate::pointer::locate;
use crate::survey::Survey;
use crate::testing;

const PATHS: Options = Options { offset: 0, limit: usize::MAX, context: 0, paths: true };

/// Reference: reads JSON by recursion, and notes the pointer of each byte.
struct Naive<'a> {
    data: &'a [u8],
    at: usize,
    pointers: Vec<String>,
}

impl Naive<'_> {
    fn value(&mut self, path: &str) {
        self.spaces(path);
        match self.data[self.at] {
            open @ (b'{' | b'[') => {
                self.take(1, path);
                let mut number = 0;
                let mut member = path.to_owned();
                loop {
                    let is_array = open == b'[';
                    // White space before the first value of an array belongs to it.
                    let before = if is_array { format!("{path}/{number}") } else { path.to_owned() };
                    self.spaces(&before);
                    if matches!(self.data[self.at], b'}' | b']') {
                        break;
                    }
                    if is_array {
                        member = before;
                    } else {
                        let end = self.string_end();
                        let key: String = serde_json::from_slice(&self.data[self.at..end]).unwrap();
                        member = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                        self.take(end - self.at, &member);
                        self.spaces(&member);
                        self.take(1, &member);
                    }
                    self.value(&member);
                    self.spaces(&member);
                    if self.data[self.at] != b',' {
                        break;
                    }
                    self.take(1, &member);
                    number += 1;
                }
                let _ = member;
                self.take(1, path);
            }
            b'"' => self.take(self.string_end() - self.at, path),
            _ => {
                let is_end = |byte: &u8| b",:{}[] \n\"".contains(byte);
                let rest = &self.data[self.at..];
                self.take(rest.iter().position(is_end).unwrap_or(rest.len()), path);
            }
        }
    }

    fn string_end(&self) -> usize {
        let mut end = self.at + 1;
        while self.data[end] != b'"' {
            end += if self.data[end] == b'\\' { 2 } else { 1 };
        }
        end + 1
    }

    fn spaces(&mut self, path: &str) {
        while self.data.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.take(1, path);
        }
    }

    fn take(&mut self, count: usize, path: &str) {
        self.at += count;
        self.pointers.resize(self.at, path.to_owned());
    }
}

fn naive(data: &[u8]) -> Vec<String> {
    let mut naive = Naive { data, at: 0, pointers: Vec::new() };
    naive.value("");
    naive.pointers
}

/// Returns the pointers of the bytes at every `step`-th offset.
fn pointers(data: &[u8], index: Option<&ItemIndex>, step: usize) -> Vec<Option<String>> {
    let any = Pattern::regex("(?s-u:.)", false).unwrap();
    let page = search(data, &any, PATHS, index).unwrap();
    let mut places = super::super::Places::new(data, index, true);
    page.matches.iter().step_by(step).map(|found| places.at(&(found.start..found.end)).path).collect()
}

proptest! {
    #[test]
    fn every_byte_has_the_pointer_of_its_value(value in testing::json(), pretty in any::<bool>(), step in 1..9_usize) {
        let data = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        prop_assume!(data.len() < super::MAX_WALK_BYTES / 4);
        for (found, expected) in pointers(&data, None, step).into_iter().zip(naive(&data).into_iter().step_by(step)) {
            prop_assert_eq!(found, Some(expected), "{}", String::from_utf8_lossy(&data));
        }
    }

    #[test]
    fn items_are_found_by_their_index(
        values in prop::collection::vec(testing::json(), 0..9), around in testing::json(), pretty in any::<bool>(), step in 1..9_usize,
    ) {
        let document = serde_json::json!({"~before": around, "in/side": {"rows": values}, "zafter": {"x": around}});
        let data = if pretty { serde_json::to_vec_pretty(&document) } else { serde_json::to_vec(&document) }.unwrap();
        prop_assume!(data.len() < super::MAX_WALK_BYTES / 4);
        let index = index_items(&data, Some("/in~1side/rows"), true).unwrap();
        let expected = naive(&data);
        let offsets = (0..data.len()).step_by(step);
        for (offset, found) in offsets.zip(pointers(&data, Some(&index), step)) {
            let expected = &expected[offset];
            // The closing bracket, and white space before it, belong to the last item.
            let last = values.len().checked_sub(1).map(|last| format!("/in~1side/rows/{last}"));
            let is_end = data[offset] == b']' || data[offset].is_ascii_whitespace();
            if found.as_ref() != Some(expected) {
                prop_assert!(is_end && found.is_some() && found == last, "{:?} at {} of {}", found, offset, String::from_utf8_lossy(&data));
            }
        }
    }

    #[test]
    fn a_value_is_found_by_its_pointer(value in testing::json(), text in prop::sample::select(vec!["a", "é", "1", "[{"])) {
        let data = serde_json::to_vec(&value).unwrap();
        let pattern = Pattern::in_values(text, false, false).unwrap();
        for found in search(&data, &pattern, PATHS, None).unwrap().matches {
            let Some(path) = found.path else { continue };
            let span = locate(&data, &Pointer::parse(&path).unwrap()).unwrap();
            // A match in a key stands before the value.
            prop_assert!(found.end <= span.end);
        }
    }
}

#[test]
fn rows_have_the_names_of_their_columns() {
    let data = b"id,a/b,\"x,y\"\n1,two,\"th,\"\"ree\"\n4,,six,seven\n";
    let mut survey = Survey::new(Some(false), Some(Kind::Csv));
    survey.feed(data);
    let index = survey.finish().items.unwrap();
    let find = |text: &str| {
        let pattern = Pattern::literal(text, false).unwrap();
        search(data, &pattern, PATHS, Some(&index)).unwrap().matches[0].path.clone()
    };
    for (text, path) in [
        ("1,two", Some("/0/id")),
        ("two", Some("/0/a~1b")),
        (",\"th", Some("/0/a~1b")),
        ("ree", Some("/0/x,y")),
        (",six", Some("/1/a~1b")),
        ("seven", Some("/1/column_4")),
        ("id", None),
    ] {
        assert_eq!(find(text).as_deref(), path, "{text}");
    }
}

#[test]
fn lines_have_the_numbers_of_their_values() {
    let data = b"{\"a\": 1}\n\n [2, {\"b\": \"x\"}]\n\"y\"\n";
    let index = index_items(data, None, true).unwrap();
    for (text, path) in [("a", "/0/a"), ("2", "/1/0"), ("x", "/1/1/b"), ("y", "/2")] {
        let page = search(data, &Pattern::literal(text, false).unwrap(), PATHS, Some(&index)).unwrap();
        assert_eq!(page.matches[0].path.as_deref(), Some(path));
    }
}

#[test]
fn entries_of_a_map_have_their_keys() {
    let entries =
        (0..40).map(|number| format!("\"k/{number}\": {{\"name\": \"n{number}\", \"tags\": [\"x\"]}}"));
    let data = format!("{{\"plugins\": {{{}}}, \"zz\": [\"x\"]}}", entries.collect::<Vec<_>>().join(", "));
    let index = index_items(data.as_bytes(), None, true).unwrap();
    assert_eq!((index.kind(), index.path()), (Some(Kind::Map), Some("/plugins")));
    let find = |text: &str| {
        let options = Options { context: 1000, ..PATHS };
        let page =
            search(data.as_bytes(), &Pattern::in_values(text, false, false).unwrap(), options, Some(&index));
        let last = page.unwrap().matches.pop().unwrap();
        (last.item, last.path.unwrap(), last.context.unwrap())
    };
    let entry = r#""k/17": {"name": "n17", "tags": ["x"]}"#;
    assert_eq!(find("n17"), (Some(17), "/plugins/k~117/name".to_owned(), entry.to_owned()));
    assert_eq!(find("k/17"), (Some(17), "/plugins/k~117".to_owned(), entry.to_owned()));
    assert_eq!(find("x").1, "/zz/0");
}

#[test]
fn costly_pointers_are_left_out() {
    let find = |data: &str| {
        let page = search(data.as_bytes(), &Pattern::literal("x", false).unwrap(), PATHS, None).unwrap();
        page.matches[0].path.clone()
    };
    assert_eq!(find(r#"{"a": ["x"]}"#).as_deref(), Some("/a/0"));
    assert_eq!(find(&format!("{{\"{}\": \"x\"}}", "k".repeat(super::MAX_POINTER_BYTES))), None);
    assert_eq!(find(&format!("{}\"x\"", "[".repeat(super::MAX_DEPTH + 1))), None);
    assert_eq!(find(&format!("[\"{}\", \"x\"]", "y".repeat(super::MAX_WALK_BYTES))), None);
    assert_eq!(find(r#"{"\ud800": "x"}"#), None);
    assert_eq!(find("} x"), None);
}
