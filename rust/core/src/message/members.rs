//! Finds members of an object by name. Its other keys may be invalid.

use std::ops::Range;

use super::source::Value;
use super::unescape::unescape;
use crate::error::Result;

/// Maximum raw size of one byte of a key, which may be written as an escape: `\u0061`.
const MAX_ESCAPE_LEN: usize = 6;

/// Returns the spans of the values of the named members, in the order of `names`. Of equal keys the last one
/// counts. A value that is not an object has no members.
pub fn members(object: &Value<'_>, names: &[&str]) -> Result<Vec<Option<Range<u64>>>> {
    let mut found = vec![None; names.len()];
    let mut scanner = object.scanner()?;
    if !scanner.take_if(b'{')? || scanner.take_if(b'}')? {
        return Ok(found);
    }
    let max_key_bytes = names.iter().map(|name| name.len()).max().unwrap_or(0) * MAX_ESCAPE_LEN + 2;
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
        let value = object.part(&scanner.skip()?).span;
        if key.len() <= max_key_bytes
            && let Some(content) = key.get(1..key.len() - 1)
            && let name = unescape(content)
            && let Some(index) = names.iter().position(|candidate| candidate.as_bytes() == name)
        {
            found[index] = Some(value);
        }
        if scanner.take_if(b'}')? {
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

    #[test]
    fn a_truncated_object_is_an_error() {
        let object = br#"{"a": [1, "b"], "c": {"d": 2}}"#;
        for end in 1..object.len() {
            assert!(find(&object[..end], &["a", "c"]).is_err(), "{end}");
        }
    }
}
