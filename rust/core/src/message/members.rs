//! Finds members of an object by name, and items of an array. Other keys and values may be invalid.

use std::ops::Range;

use super::source::Value;
use super::unescape::unescape;
use crate::error::{Error, Result};

/// Maximum raw size of one byte of a key, which may be written as an escape: `\u0061`.
const MAX_ESCAPE_LEN: usize = 6;

/// Returns the spans of the values of the named members, in the order of `names`. Of equal keys the last one
/// counts. A value that is not an object has no members.
pub fn members(object: &Value<'_>, names: &[&str]) -> Result<Vec<Option<Range<u64>>>> {
    let mut found = vec![None; names.len()];
    let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
    visit_members(object, longest, |name, value| {
        if let Some(index) = names.iter().position(|candidate| candidate.as_bytes() == name) {
            found[index] = Some(value.span);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns the spans of the values at these paths of names, each with the index of its path, in the order of
/// the spans. Of equal keys all count. Inside of a value at a path no others are searched for.
pub fn values_at(object: &Value<'_>, paths: &[Vec<&str>]) -> Result<Vec<(usize, Range<u64>)>> {
    let mut found = Vec::new();
    let paths: Vec<_> = paths.iter().map(Vec::as_slice).enumerate().collect();
    find_paths(object, &paths, &mut found)?;
    Ok(found)
}

/// Appends the values at `paths`, which have the index of their whole path. Recursion is as deep as the paths.
fn find_paths(
    object: &Value<'_>,
    paths: &[(usize, &[&str])],
    found: &mut Vec<(usize, Range<u64>)>,
) -> Result<()> {
    let longest = paths.iter().filter_map(|(_, path)| path.first()).map(|name| name.len()).max().unwrap_or(0);
    visit_members(object, longest, |name, value| {
        let inner: Vec<_> = paths
            .iter()
            .filter_map(|&(index, path)| Some((index, path.split_first()?)))
            .filter(|(_, (first, _))| first.as_bytes() == name)
            .map(|(index, (_, rest))| (index, rest))
            .collect();
        if let Some((index, _)) = inner.iter().find(|(_, rest)| rest.is_empty()) {
            found.push((*index, value.span));
            return Ok(());
        }
        if inner.is_empty() { Ok(()) } else { find_paths(&value, &inner, found) }
    })
}

/// Calls `visit` with the decoded key and the value of each member whose key has at most `longest` bytes. A
/// value that is not an object has no members.
fn visit_members<'a>(
    object: &Value<'a>,
    longest: usize,
    mut visit: impl FnMut(&[u8], Value<'a>) -> Result<()>,
) -> Result<()> {
    let mut scanner = object.scanner()?;
    if !scanner.take_if(b'{')? || scanner.take_if(b'}')? {
        return Ok(());
    }
    let max_key_bytes = longest * MAX_ESCAPE_LEN + 2;
    let mut key = Vec::new();
    loop {
        if scanner.peek()? != b'"' {
            return Err(scanner.fail("expected a key"));
        }
        key.clear();
        scanner.take_string(&mut key, max_key_bytes)?;
        if !scanner.take_if(b':')? {
            return Err(scanner.fail("expected a colon"));
        }
        let value = object.part(&scanner.skip()?);
        if key.len() <= max_key_bytes
            && let Some(content) = key.get(1..key.len() - 1)
        {
            visit(&unescape(content), value)?;
        }
        if scanner.take_if(b'}')? {
            return Ok(());
        }
        if !scanner.take_if(b',')? {
            return Err(scanner.fail("expected a comma or the end of what is open"));
        }
    }
}

/// Returns the spans of the items of an array. A value that is not an array has none.
///
/// # Errors
/// `InvalidArgument` for more than `limit` items, `InvalidJson` for an array that ends too early.
pub fn items(array: &Value<'_>, limit: usize) -> Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let mut scanner = array.scanner()?;
    if !scanner.take_if(b'[')? || scanner.take_if(b']')? {
        return Ok(found);
    }
    loop {
        if found.len() == limit {
            return Err(Error::argument(format!("an array of more than {limit} items")));
        }
        found.push(array.part(&scanner.skip()?).span);
        if scanner.take_if(b']')? {
            return Ok(found);
        }
        if !scanner.take_if(b',')? {
            return Err(scanner.fail("expected a comma or the end of what is open"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Source;
    use crate::testing;
    use proptest::prelude::*;
    use serde_json::Value as Json;

    fn find(object: &[u8], names: &[&str]) -> Result<Vec<Option<Vec<u8>>>> {
        let source = Source::Memory(object);
        let spans = members(&Value { source: &source, span: 0..object.len() as u64 }, names)?;
        let bytes = |span: Range<u64>| object[span.start as usize..span.end as usize].to_vec();
        Ok(spans.into_iter().map(|span| span.map(bytes)).collect())
    }

    proptest! {
        #[test]
        fn matches_a_parser(
            pairs in prop::collection::vec((prop_oneof![Just("a".to_owned()), Just("é\"".to_owned()), testing::text()], testing::json()), 0..6),
            is_pretty: bool,
        ) {
            let member = |(key, value): &(String, Json)| format!("{}:{value}", serde_json::to_string(key).unwrap());
            let pairs: Vec<_> = pairs.iter().map(member).collect();
            let object = format!("{{{}}}", pairs.join(if is_pretty { " ,\n" } else { "," }));
            let value: Json = serde_json::from_str(&object).unwrap();
            let names = ["a", "é\"", "b"];
            let expected: Vec<_> = names.iter().map(|name| value.get(name).cloned()).collect();
            let read = |value: Option<Vec<u8>>| value.map(|value| serde_json::from_slice::<Json>(&value).unwrap());
            let got: Vec<_> = find(object.as_bytes(), &names).unwrap().into_iter().map(read).collect();
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn escaped_keys_match_and_invalid_keys_are_skipped() {
        let object = br#"{"\ud800": 1, "\u0061": [2], "x\xff": 3, "a": 4}"#;
        assert_eq!(find(object, &["a", "z"]), Ok(vec![Some(b"4".to_vec()), None]));
        assert_eq!(find(b"{}", &["a"]), Ok(vec![None]));
        assert_eq!(find(b"[1]", &["a"]), Ok(vec![None]));
    }

    /// An object as text, with the spans of the values at the paths `a`, `c` and `b.a`.
    fn render(members: &[(String, Json)], space: &str) -> (String, Vec<(usize, Range<u64>)>) {
        fn write(
            value: &Json,
            path: &str,
            space: &str,
            text: &mut String,
            spans: &mut Vec<(usize, Range<u64>)>,
        ) {
            let start = text.len() as u64;
            match value {
                Json::Object(members) if path == "b" => {
                    text.push('{');
                    for (number, (key, value)) in members.iter().enumerate() {
                        text.push_str(if number > 0 { "," } else { space });
                        text.push_str(&format!("{}{space}:{space}", Json::from(key.as_str())));
                        write(value, &format!("b.{key}"), space, text, spans);
                    }
                    text.push_str(space);
                    text.push('}');
                }
                _ => text.push_str(&value.to_string()),
            }
            let index = ["a", "c", "b.a"].iter().position(|candidate| *candidate == path);
            spans.extend(index.map(|index| (index, start..text.len() as u64)));
        }
        let (mut text, mut spans) = (format!("{space}{{"), Vec::new());
        for (number, (key, value)) in members.iter().enumerate() {
            text.push_str(if number > 0 { "," } else { space });
            text.push_str(&format!("{}{space}:", Json::from(key.as_str())));
            write(value, key, space, &mut text, &mut spans);
        }
        text.push_str(&format!("{space}}}"));
        (text, spans)
    }

    fn find_at(object: &[u8], paths: &[Vec<&str>]) -> Result<Vec<(usize, Range<u64>)>> {
        let source = Source::Memory(object);
        values_at(&Value { source: &source, span: 0..object.len() as u64 }, paths)
    }

    proptest! {
        #[test]
        fn values_at_paths_are_where_they_were_written(
            members in prop::collection::vec(("[abcd]", prop_oneof![
                testing::json(),
                prop::collection::vec(("[abc]", testing::json()), 0..4)
                    .prop_map(|members| Json::Object(members.into_iter().collect())),
            ]), 0..6),
            space in "[ \t]{0,2}",
        ) {
            let (object, expected) = render(&members, &space);
            let paths = [vec!["a"], vec!["c"], vec!["b", "a"]];
            prop_assert_eq!(find_at(object.as_bytes(), &paths).unwrap(), expected);
        }
    }

    #[test]
    fn a_path_inside_of_another_one_is_not_searched_for() {
        let paths = [vec!["a", "b"], vec!["a"], vec!["a", "b", "c"]];
        assert_eq!(find_at(br#"{"a":{"b":1},"\u0061":2}"#, &paths), Ok(vec![(1, 5..12), (1, 22..23)]));
        assert_eq!(find_at(b"{}", &[vec![]]), Ok(vec![]));
        assert_eq!(find_at(b"[1]", &paths), Ok(vec![]));
    }

    fn split(array: &[u8], limit: usize) -> Result<Vec<Vec<u8>>> {
        let source = Source::Memory(array);
        let spans = items(&Value { source: &source, span: 0..array.len() as u64 }, limit)?;
        Ok(spans.iter().map(|span| array[span.start as usize..span.end as usize].to_vec()).collect())
    }

    proptest! {
        #[test]
        fn items_match_a_parser(values in prop::collection::vec(testing::json(), 0..6), is_pretty: bool) {
            let texts: Vec<String> = values.iter().map(Json::to_string).collect();
            let array = format!("[{}]", texts.join(if is_pretty { " ,\n" } else { "," }));
            let expected: Vec<_> = texts.into_iter().map(String::into_bytes).collect();
            prop_assert_eq!(split(array.as_bytes(), values.len()).unwrap(), expected);
            if !values.is_empty() {
                prop_assert!(split(array.as_bytes(), values.len() - 1).is_err());
            }
            for end in 1..array.len() {
                prop_assert!(split(&array.as_bytes()[..end], 10).is_err());
            }
        }
    }

    #[test]
    fn a_truncated_object_is_an_error() {
        let object = br#"{"a": [1, "b"], "c": {"d": 2}}"#;
        for end in 1..object.len() {
            assert!(find(&object[..end], &["a", "c"]).is_err(), "{end}");
        }
    }
}
