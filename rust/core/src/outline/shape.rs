//! What values have in common: a tree as large as the differences between them, not as the payload.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// How many different keys of one object are told apart.
pub(super) const MAX_KEYS: usize = 256;

/// More keys than this are a map, if their values resemble each other.
const MAP_KEYS: usize = 20;

/// More keys than this are a map, if their values are scalars of one type and only one such object was seen:
/// a record of settings may look the same.
const MAP_KEYS_OF_SCALARS: usize = 100;

pub(super) const STR: u8 = 1;
pub(super) const INT: u8 = 2;
pub(super) const FLOAT: u8 = 4;
pub(super) const BOOL: u8 = 8;
pub(super) const NULL: u8 = 16;
const OBJECT: u8 = 32;
const ARRAY: u8 = 64;

/// Everything that was seen at one place. Nothing seen: the item of an empty array.
#[derive(Debug, Default)]
pub(super) struct Shape<'a> {
    /// A set of `STR`, `INT`, …
    pub(super) scalars: u8,
    pub(super) object: Option<Box<Object<'a>>>,
    pub(super) array: Option<Box<Array<'a>>>,
}

#[derive(Debug, Default)]
pub(super) struct Object<'a> {
    /// How many objects were merged.
    pub(super) seen: u64,
    /// How many keys they have.
    pub(super) keys: Counts,
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
    pub(super) seen: u64,
    pub(super) shape: Shape<'a>,
}

#[derive(Debug, Default)]
pub(super) struct Array<'a> {
    pub(super) len: Counts,
    /// Nothing, if no item was looked at.
    pub(super) item: Shape<'a>,
}

/// The least and the most of several counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts(pub(super) Option<(u64, u64)>);

impl Counts {
    pub(super) fn add(&mut self, count: u64) {
        self.absorb(Self(Some((count, count))));
    }

    fn absorb(&mut self, other: Self) {
        self.0 = match (self.0, other.0) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
    }
}

impl<'a> Object<'a> {
    /// The field of a key; a new one if `may_grow` and there are not too many. The guess costs nothing and is
    /// right where objects list their keys in one order.
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
        // A checked copy: what is borrowed may change under us, and then it is no longer a `str`.
        let key: Cow<'a, str> = Cow::Owned(String::from_utf8(key.as_bytes().to_vec()).unwrap_or_default());
        self.positions.insert(key.clone(), self.fields.len());
        self.fields.push(Field { key, seen: 0, shape: Shape::default() });
        Some(self.fields.len() - 1)
    }

    /// Whether the keys are data rather than names.
    fn has_data_for_keys(&self) -> bool {
        if self.fields.is_empty() {
            return false;
        }
        if self.fields.iter().all(|field| is_id(&field.key)) {
            return true;
        }
        let places = self.seen.saturating_mul(self.fields.len() as u64);
        let filled: u64 = self.fields.iter().map(|field| field.seen).sum();
        if self.seen > 1 && filled.saturating_mul(2) >= places {
            // The same keys again and again are names.
            return false;
        }
        let kinds = self.fields.iter().fold(0, |kinds, field| kinds | field.shape.kinds());
        let (is_alike, most_names) = match kinds {
            OBJECT => (self.has_similar_objects(), MAP_KEYS),
            ARRAY => (true, MAP_KEYS),
            STR | FLOAT | BOOL if self.seen > 1 => (true, MAP_KEYS),
            STR | FLOAT | BOOL => (true, MAP_KEYS_OF_SCALARS),
            _ => (false, 0),
        };
        is_alike && self.fields.len() > most_names
    }

    /// Whether the objects inside have, on average, a quarter of all the keys they have together.
    fn has_similar_objects(&self) -> bool {
        let objects = self.fields.iter().filter_map(|field| field.shape.object.as_ref());
        let (mut keys, mut count, mut total) = (HashSet::new(), 0, 0);
        for object in objects {
            count += 1;
            total += object.fields.len();
            keys.extend(object.fields.iter().map(|field| &field.key));
        }
        4 * total >= keys.len() * count
    }

    fn become_map(&mut self) {
        self.is_map = true;
        let mut fields = std::mem::take(&mut self.fields).into_iter();
        self.fields.extend(fields.next());
        if let Some(all) = self.fields.first_mut() {
            fields.for_each(|field| all.shape.absorb(field.shape));
        }
    }

    fn absorb(&mut self, other: Self) {
        self.seen += other.seen;
        self.keys.absorb(other.keys);
        self.is_cut |= other.is_cut;
        for (guess, field) in other.fields.into_iter().enumerate() {
            if let Some(at) = self.position(field.key, guess, true) {
                self.fields[at].seen += field.seen;
                self.fields[at].shape.absorb(field.shape);
            }
        }
    }
}

impl Shape<'_> {
    /// Makes maps of the objects whose keys are data. What is inside a map is merged before it is judged.
    pub(super) fn find_maps(&mut self) {
        if let Some(array) = &mut self.array {
            array.item.find_maps();
        }
        if let Some(object) = &mut self.object {
            if object.has_data_for_keys() {
                object.become_map();
            }
            object.fields.iter_mut().for_each(|field| field.shape.find_maps());
        }
    }

    /// What it may be, apart from null. Numbers are all `FLOAT`.
    fn kinds(&self) -> u8 {
        let numbers = if self.scalars & (INT | FLOAT) != 0 { FLOAT } else { 0 };
        let object = if self.object.is_some() { OBJECT } else { 0 };
        let array = if self.array.is_some() { ARRAY } else { 0 };
        self.scalars & (STR | BOOL) | numbers | object | array
    }
}

impl<'a> Shape<'a> {
    fn absorb(&mut self, other: Shape<'a>) {
        self.scalars |= other.scalars;
        if let Some(other) = other.object {
            self.object.get_or_insert_default().absorb(*other);
        }
        if let Some(other) = other.array {
            let array = self.array.get_or_insert_default();
            array.len.absorb(other.len);
            array.item.absorb(other.item);
        }
    }
}

/// Whether a key looks like a number, a date, an address, a UUID or a hash.
fn is_id(key: &str) -> bool {
    let is_mark = |byte| matches!(byte, b'-' | b'.' | b':' | b'_');
    let has_letter = key.bytes().any(|byte| byte.is_ascii_alphabetic());
    key.bytes().all(|byte| byte.is_ascii_hexdigit() || is_mark(byte))
        && key.bytes().any(|byte| byte.is_ascii_digit())
        && (!has_letter || key.len() >= 8)
}
