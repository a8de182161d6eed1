//! Distinguishes a map of similar values from a record.

use std::hash::{DefaultHasher, Hasher};

/// Number of leading objects that decide whether an object is a map. Arrays and scalars need more, because they are more
/// often similar by chance.
pub(crate) const MIN_MAP_OBJECTS: u32 = 8;

/// Number of leading arrays that decide whether an object is a map.
const MIN_MAP_ARRAYS: u32 = 32;

/// Number of leading scalars of one type that decide whether an object is a map.
pub(crate) const MIN_MAP_SCALARS: u32 = 100;

/// Maximum number of keys of one value that are compared, which bounds the memory for its hashes.
const MAX_KEYS_PER_VALUE: u32 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Object,
    Array,
    Text,
    Number,
    Bool,
}

impl Kind {
    /// Returns the kind of a value by its first byte; `None` for null, and for what is not JSON.
    fn of(first: u8) -> Option<Self> {
        Some(match first {
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::Text,
            b'-' | b'0'..=b'9' => Self::Number,
            b't' | b'f' => Self::Bool,
            _ => return None,
        })
    }

    /// Returns how many values of this kind decide.
    fn required_values(self) -> u32 {
        match self {
            Self::Object => MIN_MAP_OBJECTS,
            Self::Array => MIN_MAP_ARRAYS,
            Self::Text | Self::Number | Self::Bool => MIN_MAP_SCALARS,
        }
    }
}

/// Decides whether an object is a map of similar values, by its first values.
///
/// It is a map if, nulls aside, the first 8 values are objects whose average number of keys is at least a quarter of
/// the number of distinct keys, or the first 32 are arrays, or the first 100 are scalars of one type. Of each value the
/// first 32 keys are compared, as they are written. Later values do not change the result, so the caller can skip them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MapDetector {
    is_map: Option<bool>,
    kind: Option<Kind>,
    /// Number of values, nulls aside.
    values: u32,
    /// Number of keys of the last value that were compared.
    value_keys: u32,
    /// Number of keys of all values that were compared.
    keys: u32,
    /// Sorted hashes of the distinct keys.
    distinct: Vec<u64>,
}

impl MapDetector {
    /// Forgets everything but keeps the memory.
    pub(crate) fn clear(&mut self) {
        let mut distinct = std::mem::take(&mut self.distinct);
        distinct.clear();
        *self = Self { distinct, ..Self::default() };
    }

    /// Whether the object is known to be a map.
    pub(crate) fn is_map(&self) -> bool {
        self.is_map == Some(true)
    }

    /// Whether more values may change the answer.
    pub(crate) fn is_undecided(&self) -> bool {
        self.is_map.is_none()
    }

    /// Adds a value of the object, by its first byte.
    pub(crate) fn begin_value(&mut self, first: u8) {
        let Some(kind) = Kind::of(first).filter(|_| self.is_undecided()) else { return };
        self.value_keys = 0;
        self.values += 1;
        if *self.kind.get_or_insert(kind) != kind {
            self.is_map = Some(false);
        }
    }

    /// Adds a key of the value that was begun, without its quotes.
    pub(crate) fn add_key(&mut self, raw: &[u8]) {
        if !self.is_undecided() || self.value_keys == MAX_KEYS_PER_VALUE {
            return;
        }
        self.value_keys += 1;
        self.keys += 1;
        let mut hasher = DefaultHasher::new();
        hasher.write(raw);
        let hash = hasher.finish();
        if let Err(at) = self.distinct.binary_search(&hash) {
            self.distinct.insert(at, hash);
        }
    }

    /// Ends the value that was begun, after its keys.
    pub(crate) fn end_value(&mut self) {
        let Some(kind) = self.kind.filter(|_| self.is_undecided()) else { return };
        if self.values == kind.required_values() {
            let are_similar = 4 * u64::from(self.keys) >= self.distinct.len() as u64 * u64::from(self.values);
            self.is_map = Some(kind != Kind::Object || are_similar);
        }
    }
}
