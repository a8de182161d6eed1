//! JSON as serde_json understands it, which most functions are compared with.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Whether `data` is one JSON value. Nothing is decoded, so numbers out of range, lone surrogates and any
/// depth are accepted, as in RFC 8259.
#[must_use]
pub fn is_json(data: &[u8]) -> bool {
    std::str::from_utf8(data).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Returns the values of NDJSON, one per line; `None` if a line is neither blank nor JSON.
#[must_use]
pub fn rows(data: &[u8]) -> Option<Vec<&[u8]>> {
    let rows = data.split(|&byte| byte == b'\n').map(trim).filter(|row| !row.is_empty());
    rows.map(|row| is_json(row).then_some(row)).collect()
}

fn trim(mut data: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    while let [first, rest @ ..] = data
        && is_space(first)
    {
        data = rest;
    }
    while let [rest @ .., last] = data
        && is_space(last)
    {
        data = rest;
    }
    data
}

/// Parses `data`; `None` if it is not JSON, or if serde_json may understand it differently than forebay does:
/// equal keys in one object, numbers out of range, lone surrogates, more than 128 levels.
#[must_use]
pub fn parse(data: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Unambiguous>(data).ok().map(|value| value.0)
}

struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Build).map(Self)
    }
}

struct Build;

impl<'de> Visitor<'de> for Build {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without equal keys")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((key, Unambiguous(value))) = members.next_entry::<String, _>()? {
            if object.insert(key, value).is_some() {
                return Err(de::Error::custom("equal keys"));
            }
        }
        Ok(Value::Object(object))
    }
}
