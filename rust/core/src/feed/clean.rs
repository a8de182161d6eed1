//! Values that DuckDB's JSON reader rejects, written so that it does not.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::walk::{next_member, take_key};
use crate::error::Result;
use crate::message::unescape;
use crate::reader::{Kind, Reader};
use crate::scan::Isa;

/// Maximum nesting that is searched for repeated keys.
pub(super) const MAX_DEPTH: usize = 64;

const REPLACEMENT: &[u8] = br"\ufffd";

/// Returns a key without its escapes. A lone surrogate becomes U+FFFD.
#[inline]
pub(super) fn key_bytes(raw: &[u8]) -> Cow<'_, [u8]> {
    match memchr::memchr(b'\\', raw) {
        None => Cow::Borrowed(raw),
        Some(_) => {
            let mut clean = Vec::with_capacity(raw.len());
            push_without_surrogates(raw, &mut clean);
            Cow::Owned(unescape(&clean))
        }
    }
}

/// Whether a string may contain the escape of a surrogate.
pub(super) fn may_have_surrogates(string: &[u8]) -> bool {
    let Some(first) = memchr::memchr(b'\\', string) else { return false };
    let mut rest = &string[first..];
    while let Some(at) = memchr::memchr(b'\\', rest) {
        rest = &rest[at + 1..];
        if let [b'u', b'd' | b'D', ..] = rest {
            return true;
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    false
}

/// Appends a value, with U+FFFD in place of each lone surrogate.
pub(super) fn push_without_surrogates(value: &[u8], out: &mut Vec<u8>) {
    let mut rest = value;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (before, escape) = rest.split_at(at);
        out.extend_from_slice(before);
        let (len, is_lone) = match surrogate(escape) {
            Some(0xd800..0xdc00) if matches!(surrogate(&escape[6..]), Some(0xdc00..0xe000)) => (12, false),
            Some(_) => (6, true),
            None => (escape.len().min(2), false),
        };
        out.extend_from_slice(if is_lone { REPLACEMENT } else { &escape[..len] });
        rest = &escape[len..];
    }
    out.extend_from_slice(rest);
}

/// Returns the surrogate that an escape stands for.
fn surrogate(escape: &[u8]) -> Option<u32> {
    let digits = escape.strip_prefix(br"\u")?.get(..4)?;
    let unit = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (0xd800..0xe000).contains(&unit).then_some(unit)
}

/// Appends a value in which the last of equal keys has replaced the others, as in a Python dictionary.
pub(super) fn push_last_members(isa: Isa, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
    push_value(isa, &mut Reader::new(value, isa), value, out, 0)
}

fn push_value(isa: Isa, reader: &mut Reader<'_>, data: &[u8], out: &mut Vec<u8>, depth: usize) -> Result<()> {
    match reader.kind()? {
        Kind::Object if depth < MAX_DEPTH => {
            reader.open();
            let members = last_members(reader, data)?;
            out.push(b'{');
            for (number, (key, value)) in members.into_iter().enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(&data[key]);
                out.push(b':');
                push_value(isa, &mut Reader::at(data, value.start, isa), data, out, depth + 1)?;
            }
            out.push(b'}');
        }
        Kind::Array if depth < MAX_DEPTH => {
            reader.open();
            out.push(b'[');
            let mut is_first = true;
            while reader.next_item(is_first)? {
                if !is_first {
                    out.push(b',');
                }
                is_first = false;
                push_value(isa, reader, data, out, depth + 1)?;
            }
            out.push(b']');
        }
        _ => {
            let span = reader.skip()?;
            out.extend_from_slice(&data[span]);
        }
    }
    Ok(())
}

/// Returns the spans of the keys, with their quotes, and of the values of an object that was opened.
pub(super) fn last_members(
    reader: &mut Reader<'_>,
    data: &[u8],
) -> Result<Vec<(Range<usize>, Range<usize>)>> {
    let mut members: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    let mut indexes: HashMap<Cow<'_, [u8]>, usize> = HashMap::new();
    let mut is_first = true;
    while next_member(reader, is_first)? {
        is_first = false;
        let key = take_key(reader)?;
        let value = reader.skip()?;
        let at = *indexes.entry(key_bytes(&data[key.clone()])).or_insert(members.len());
        match members.get_mut(at) {
            Some(member) => member.1 = value,
            None => members.push((key.start - 1..key.end + 1, value)),
        }
    }
    Ok(members)
}
