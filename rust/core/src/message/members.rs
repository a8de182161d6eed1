//! Where the members of an object are, whatever its other members are called.

use std::ops::Range;

use super::source::Value;
use super::unescape::unescape;
use crate::error::Result;

/// The most bytes that a character of a key takes: `\u00e9`.
const MOST_ESCAPE: usize = 6;

/// Where the values of an object's members of these names are, in the order of the names: of several with one name the
/// last. What is no object has none.
pub fn members(object: &Value<'_>, names: &[&str]) -> Result<Vec<Option<Range<u64>>>> {
    let mut found = vec![None; names.len()];
    let mut scanner = object.scanner()?;
    if !scanner.take_if(b'{')? || scanner.take_if(b'}')? {
        return Ok(found);
    }
    let most_key = names.iter().map(|name| name.len()).max().unwrap_or(0) * MOST_ESCAPE + 2;
    let mut key = Vec::new();
    loop {
        if scanner.peek()? != b'"' {
            return Err(scanner.fail("expected a key"));
        }
        key.clear();
        scanner.string(&mut key, most_key)?;
        if !scanner.take_if(b':')? {
            return Err(scanner.fail("expected a colon"));
        }
        let value = object.part(&scanner.skip()?).span;
        if key.len() <= most_key
            && let Some(content) = key.get(1..key.len() - 1)
            && let name = unescape(content)
            && let Some(place) = names.iter().position(|one| one.as_bytes() == name)
        {
            found[place] = Some(value);
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

    fn found(object: &[u8], names: &[&str]) -> Result<Vec<Option<Vec<u8>>>> {
        let source = Source::Memory(object);
        let spans = members(&Value { source: &source, span: 0..object.len() as u64 }, names)?;
        let bytes = |span: Range<u64>| object[span.start as usize..span.end as usize].to_vec();
        Ok(spans.into_iter().map(|span| span.map(bytes)).collect())
    }

    proptest! {
        #[test]
        fn finds_what_a_parser_finds(
            pairs in prop::collection::vec((prop_oneof![Just("a".to_owned()), Just("é\"".to_owned()), testing::text()], testing::json()), 0..6),
            is_pretty: bool,
        ) {
            let member = |(key, value): &(String, Json)| format!("{}:{value}", serde_json::to_string(key).unwrap());
            let pairs: Vec<_> = pairs.iter().map(member).collect();
            let object = format!("{{{}}}", pairs.join(if is_pretty { " ,\n" } else { "," }));
            let parsed: Json = serde_json::from_str(&object).unwrap();
            let names = ["a", "é\"", "b"];
            let expected: Vec<_> = names.iter().map(|name| parsed.get(name).cloned()).collect();
            let read = |value: Option<Vec<u8>>| value.map(|value| serde_json::from_slice::<Json>(&value).unwrap());
            let got: Vec<_> = found(object.as_bytes(), &names).unwrap().into_iter().map(read).collect();
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn keys_may_be_written_in_any_way_and_others_be_anything() {
        let object = br#"{"\ud800": 1, "\u0061": [2], "x\xff": 3, "a": 4}"#;
        assert_eq!(found(object, &["a", "z"]), Ok(vec![Some(b"4".to_vec()), None]));
        assert_eq!(found(b"{}", &["a"]), Ok(vec![None]));
        assert_eq!(found(b"[1]", &["a"]), Ok(vec![None]));
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        let object = br#"{"a": [1, "b"], "c": {"d": 2}}"#;
        for end in 1..object.len() {
            assert!(found(&object[..end], &["a", "c"]).is_err(), "{end}");
        }
    }
}
