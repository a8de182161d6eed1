//! Merged shape of many values. Its size depends on the differences between the values, not on the payload.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::index::{MIN_MAP_OBJECTS, MIN_MAP_SCALARS};

/// Distinct keys that are recorded of one object.
pub(super) const MAX_KEYS: usize = 256;

/// An object with as many keys is a map, if its values are similar.
const MAP_KEYS: usize = 21;

/// An object with as many keys is a map, if its values are similar objects and only one such object was seen. The
/// items of a document are found by the same number.
const MAP_KEYS_OF_OBJECTS: usize = MIN_MAP_OBJECTS as usize;

/// An object with as many keys is a map, if its values are scalars of one type and only one such object was seen: a
/// record of settings may look the same.
const MAP_KEYS_OF_SCALARS: usize = MIN_MAP_SCALARS as usize;

pub(super) const STR: u8 = 1;
pub(super) const INT: u8 = 2;
pub(super) const FLOAT: u8 = 4;
pub(super) const BOOL: u8 = 8;
pub(super) const NULL: u8 = 16;
const OBJECT: u8 = 32;
const ARRAY: u8 = 64;

/// All types of values at one path. Empty for the item of an empty array.
#[derive(Debug, Default)]
pub(super) struct Shape<'a> {
    /// Bit set of `STR`, `INT`, …
    pub(super) scalars: u8,
    pub(super) object: Option<Box<Object<'a>>>,
    pub(super) array: Option<Box<Array<'a>>>,
}

#[derive(Debug, Default)]
pub(super) struct Object<'a> {
    /// How many objects were merged.
    pub(super) count: u64,
    /// How many keys they have.
    pub(super) keys: CountRange,
    /// In order of first appearance. A map has one, which stands for all.
    pub(super) fields: Vec<Field<'a>>,
    positions: HashMap<Cow<'a, str>, usize>,
    pub(super) is_map: bool,
    /// Whether there are keys that are not among the fields.
    pub(super) is_cut: bool,
}

#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) key: Cow<'a, str>,
    /// How many objects have it.
    pub(super) count: u64,
    pub(super) shape: Shape<'a>,
}

#[derive(Debug, Default)]
pub(super) struct Array<'a> {
    pub(super) len: CountRange,
    /// Empty if no item was read.
    pub(super) item: Shape<'a>,
}

/// Minimum and maximum of several counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountRange(pub(super) Option<(u64, u64)>);

impl CountRange {
    pub(super) fn add(&mut self, count: u64) {
        self.merge(Self(Some((count, count))));
    }

    fn merge(&mut self, other: Self) {
        self.0 = match (self.0, other.0) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (left, right) => left.or(right),
        };
    }
}

impl<'a> Object<'a> {
    /// Returns the index of a key's field, and adds a field if `may_grow` and there is room. `guess` is tried
    /// first: it is right where objects list their keys in the same order.
    pub(super) fn position(&mut self, key: Cow<'a, str>, guess: usize, may_grow: bool) -> Option<usize> {
        if self.fields.get(guess).is_some_and(|field| field.key == key) {
            return Some(guess);
        }
        if let Some(&at) = self.positions.get(&key) {
            return Some(at);
        }
        if !may_grow || self.fields.len() == MAX_KEYS {
            self.is_cut = true;
            return None;
        }
        // A validated copy: a borrowed key may change with the payload, and would then no longer be a valid
        // `str`.
        let key: Cow<'a, str> = Cow::Owned(String::from_utf8(key.as_bytes().to_vec()).unwrap_or_default());
        self.positions.insert(key.clone(), self.fields.len());
        self.fields.push(Field { key, count: 0, shape: Shape::default() });
        Some(self.fields.len() - 1)
    }

    /// Whether the keys are data rather than names.
    fn has_keys_that_are_data(&self) -> bool {
        if self.fields.is_empty() {
            return false;
        }
        if self.fields.iter().all(|field| is_id(&field.key)) {
            return true;
        }
        let slots = self.count.saturating_mul(self.fields.len() as u64);
        let filled: u64 = self.fields.iter().map(|field| field.count).sum();
        if self.count > 1 && filled.saturating_mul(2) >= slots {
            // Keys that most objects have are names.
            return false;
        }
        let kinds = self.fields.iter().fold(0, |kinds, field| kinds | field.shape.kinds());
        let (is_alike, min_keys) = match kinds {
            OBJECT if self.count == 1 => (self.has_similar_objects(), MAP_KEYS_OF_OBJECTS),
            OBJECT => (self.has_similar_objects(), MAP_KEYS),
            ARRAY => (true, MAP_KEYS),
            STR | FLOAT | BOOL if self.count > 1 => (true, MAP_KEYS),
            STR | FLOAT | BOOL => (true, MAP_KEYS_OF_SCALARS),
            _ => (false, 0),
        };
        is_alike && self.fields.len() >= min_keys
    }

    /// Whether the objects inside have, on average, at least a quarter of all their keys together.
    fn has_similar_objects(&self) -> bool {
        let objects = self.fields.iter().filter_map(|field| field.shape.object.as_ref());
        let (mut keys, mut objects_len, mut total) = (HashSet::new(), 0, 0);
        for object in objects {
            objects_len += 1;
            total += object.fields.len();
            keys.extend(object.fields.iter().map(|field| &field.key));
        }
        4 * total >= keys.len() * objects_len
    }

    fn become_map(&mut self) {
        self.is_map = true;
        let mut fields = std::mem::take(&mut self.fields).into_iter();
        self.fields.extend(fields.next());
        if let Some(all) = self.fields.first_mut() {
            fields.for_each(|field| all.shape.merge(field.shape));
        }
    }

    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.keys.merge(other.keys);
        self.is_cut |= other.is_cut;
        for (guess, field) in other.fields.into_iter().enumerate() {
            if let Some(at) = self.position(field.key, guess, true) {
                self.fields[at].count += field.count;
                self.fields[at].shape.merge(field.shape);
            }
        }
    }
}

impl Shape<'_> {
    /// Turns objects whose keys are data into maps. The values of a map are merged before they are examined.
    pub(super) fn find_maps(&mut self) {
        if let Some(array) = &mut self.array {
            array.item.find_maps();
        }
        if let Some(object) = &mut self.object {
            if object.has_keys_that_are_data() {
                object.become_map();
            }
            object.fields.iter_mut().for_each(|field| field.shape.find_maps());
        }
    }

    /// Returns the set of types apart from null. All numbers count as `FLOAT`.
    fn kinds(&self) -> u8 {
        let numbers = if self.scalars & (INT | FLOAT) != 0 { FLOAT } else { 0 };
        let object = if self.object.is_some() { OBJECT } else { 0 };
        let array = if self.array.is_some() { ARRAY } else { 0 };
        self.scalars & (STR | BOOL) | numbers | object | array
    }
}

impl<'a> Shape<'a> {
    fn merge(&mut self, other: Shape<'a>) {
        self.scalars |= other.scalars;
        if let Some(other) = other.object {
            self.object.get_or_insert_default().merge(*other);
        }
        if let Some(other) = other.array {
            let array = self.array.get_or_insert_default();
            array.len.merge(other.len);
            array.item.merge(other.item);
        }
    }
}

/// Whether a key looks like a number, a date, an address, a UUID or a hash.
fn is_id(key: &str) -> bool {
    let is_separator = |byte| matches!(byte, b'-' | b'.' | b':' | b'_');
    let has_letter = key.bytes().any(|byte| byte.is_ascii_alphabetic());
    key.bytes().all(|byte| byte.is_ascii_hexdigit() || is_separator(byte))
        && key.bytes().any(|byte| byte.is_ascii_digit())
        && (!has_letter || key.len() >= 8)
}
