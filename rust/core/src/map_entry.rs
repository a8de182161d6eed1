//! Entries of maps as items: values with their keys.

use std::borrow::Cow;

use crate::pointer::unescape;
use crate::reader::{Kind, Reader};
use crate::scan::{Isa, closing_quote};

/// The member of an item that holds the key of its entry.
const KEY: &str = "_key";

/// An entry of an object: `"key": value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MapEntry<'a> {
    /// As it is written, with its quotes.
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> MapEntry<'a> {
    /// Splits an entry without white space around it; `None` if it is not one. The value is not validated.
    pub(crate) fn split(isa: Isa, entry: &'a [u8]) -> Option<Self> {
        let content = entry.strip_prefix(b"\"")?;
        let (key, rest) = entry.split_at_checked(closing_quote(isa, content)? + 2)?;
        let value = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        (!value.is_empty()).then_some(Self { key, value })
    }

    pub(crate) fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Returns the key; `None` if it is not text, e.g. has a lone surrogate.
    pub(crate) fn key_text(&self) -> Option<String> {
        unescape(&self.key[1..self.key.len() - 1]).map(Cow::into_owned)
    }

    /// Appends the item: the value with the key as its first member `_key`, if it is an object without such a
    /// member; otherwise an object of `_key` and `_value`. Thus we never add a duplicate key.
    pub(crate) fn push_item(&self, isa: Isa, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"_key\":");
        out.extend_from_slice(self.key);
        match self.value.strip_prefix(b"{") {
            Some(members) if !self.has_own_key(isa) => {
                if !members.trim_ascii_start().starts_with(b"}") {
                    out.push(b',');
                }
                out.extend_from_slice(members);
            }
            _ => {
                out.extend_from_slice(b",\"_value\":");
                out.extend_from_slice(self.value);
                out.push(b'}');
            }
        }
    }

    /// Whether the value, an object, has a member `_key` itself. `true` if it cannot be parsed.
    fn has_own_key(&self, isa: Isa) -> bool {
        // Few values have these bytes: the key as it is, or an escape for one of its characters.
        let is_possible = memchr::memmem::find(self.value, b"_key\"").is_some()
            || memchr::memmem::find(self.value, b"\\u00").is_some();
        is_possible && self.find_own_key(isa).unwrap_or(true)
    }

    fn find_own_key(&self, isa: Isa) -> crate::Result<bool> {
        let mut reader = Reader::new(self.value, isa);
        if reader.kind()? != Kind::Object {
            return Ok(false);
        }
        reader.open();
        let mut is_first = true;
        while let Some(key) = reader.next_key(is_first)? {
            if unescape(&self.value[key]).is_some_and(|key| key == KEY) {
                return Ok(true);
            }
            reader.skip()?;
            is_first = false;
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    fn item(entry: &str) -> Option<String> {
        let items: Vec<_> = Isa::available()
            .into_iter()
            .map(|isa| {
                let mut out = Vec::new();
                MapEntry::split(isa, entry.as_bytes())?.push_item(isa, &mut out);
                Some(String::from_utf8(out).unwrap())
            })
            .collect();
        assert!(items.iter().all(|item| *item == items[0]), "{items:?}");
        items.into_iter().next().flatten()
    }

    #[test]
    fn the_key_is_the_first_member() {
        for (entry, expected) in [
            (r#""git":{"version": 1}"#, r#"{"_key":"git","version": 1}"#),
            ("\"git\" : {\n \"a\": 1\n}", "{\"_key\":\"git\",\n \"a\": 1\n}"),
            (r#""":{}"#, r#"{"_key":""}"#),
            (r#""a":{ }"#, r#"{"_key":"a" }"#),
            (r#""a":[1, {}]"#, r#"{"_key":"a","_value":[1, {}]}"#),
            (r#""a\"\\\/b~\ud800":"{""#, r#"{"_key":"a\"\\\/b~\ud800","_value":"{"}"#),
            ("\"a\"\t:\r\n null", r#"{"_key":"a","_value":null}"#),
        ] {
            assert_eq!(item(entry).as_deref(), Some(expected), "{entry}");
        }
        for entry in ["", "\"", "\"a", "\"a\"", "\"a\":", "\"a\\\":1", "a:1", "{}", "\"a\" 1"] {
            assert_eq!(item(entry), None, "{entry}");
        }
    }

    #[test]
    fn a_value_with_the_same_key_stays_apart() {
        for value in [r#"{"_key":1}"#, r#"{"a": {}, "\u005fke\u0079" :1}"#, r#"{"_key":"#, r#"{"a" "_key"}"#]
        {
            let expected = format!(r#"{{"_key":"k","_value":{value}}}"#);
            assert_eq!(item(&format!(r#""k":{value}"#)).as_ref(), Some(&expected));
        }
        for members in [r#""a":{"_key":1}}"#, r#""a":"_key"}"#, r#""x_key":"\u005fkey"}"#] {
            let expected = format!(r#"{{"_key":"k",{members}"#);
            assert_eq!(item(&format!(r#""k":{{{members}"#)).as_ref(), Some(&expected));
        }
    }

    proptest! {
        #[test]
        fn items_have_the_key_and_the_value(key in crate::testing::text(), value in crate::testing::json(), own_key in any::<bool>()) {
            let mut value: Value = serde_json::from_str(&value.to_string()).unwrap();
            if let (Value::Object(members), true) = (&mut value, own_key) {
                members.insert("_key".to_owned(), Value::Null);
            }
            let mut expected = Map::from_iter([("_key".to_owned(), Value::from(key.clone()))]);
            match &value {
                Value::Object(members) if !members.contains_key("_key") => expected.extend(members.clone()),
                _ => _ = expected.insert("_value".to_owned(), value.clone()),
            }
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let out = item(&format!("{}:{text}", Value::from(key.clone()))).unwrap();
                prop_assert_eq!(serde_json::from_str::<Map<String, Value>>(&out).unwrap(), expected.clone());
                prop_assert!(out.starts_with("{\"_key\":"), "{}", out);
            }
        }
    }
}
