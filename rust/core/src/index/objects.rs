//! The objects from the root to the locator's position.

use super::builder::IndexBuilder;
use super::map_detector::MapDetector;
use crate::pointer::push_token;

/// Longest key that can be part of a path. Bounds what has to be remembered of a stream.
const MAX_KEY_BYTES: usize = 4096;

/// An object that is being read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct OpenObject {
    /// Its current key, as it is written.
    key: Vec<u8>,
    is_key_too_long: bool,
    /// Offset of its opening brace.
    pub(super) start: u64,
    /// Where its next entry begins: after the brace or the last comma.
    pub(super) next_entry: u64,
    /// Whether that entry is among the entries already.
    pub(super) is_next_counted: bool,
    /// Its entries, in case it is a map.
    pub(super) entries: IndexBuilder,
    pub(super) map_detector: MapDetector,
    /// Bytes of the largest collection inside.
    pub(super) largest_inside: u64,
}

impl OpenObject {
    /// Returns the current key, unless it is too long.
    fn key(&self) -> Option<&[u8]> {
        if self.is_key_too_long { None } else { Some(&self.key) }
    }
}

/// A stack of open objects. It reuses its memory, since a payload may have millions of objects.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenObjects {
    objects: Vec<OpenObject>,
    depth: usize,
}

impl PartialEq for OpenObjects {
    fn eq(&self, other: &Self) -> bool {
        self.objects[..self.depth] == other.objects[..other.depth]
    }
}

impl OpenObjects {
    /// How many objects are open.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut OpenObject> {
        self.objects[..self.depth].last_mut()
    }

    /// Enters an object whose brace is at `start`.
    pub(super) fn enter(&mut self, start: u64) {
        self.depth += 1;
        if self.objects.len() < self.depth {
            self.objects.push(OpenObject::default());
        }
        let Some(object) = self.last_mut() else { return };
        (object.start, object.next_entry, object.largest_inside) = (start, start + 1, 0);
        object.is_next_counted = false;
        object.entries.clear();
        object.map_detector.clear();
    }

    /// Leaves the innermost object, and returns it.
    pub(super) fn leave(&mut self) -> Option<&mut OpenObject> {
        self.depth = self.depth.checked_sub(1)?;
        self.objects.get_mut(self.depth)
    }

    /// Begins the next entry of the innermost object, at the quote of its key.
    pub(super) fn begin_key(&mut self) {
        if let Some(object) = self.last_mut() {
            object.key.clear();
            object.is_key_too_long = false;
            if !std::mem::take(&mut object.is_next_counted) {
                object.entries.push(object.next_entry);
            }
        }
    }

    /// Appends to the innermost key.
    pub(super) fn push_key(&mut self, text: &[u8]) {
        if let Some(object) = self.last_mut() {
            object.is_key_too_long |= object.key.len() + text.len() > MAX_KEY_BYTES;
            if !object.is_key_too_long {
                object.key.extend_from_slice(text);
            }
        }
    }

    /// Ends the innermost key, which is compared with the keys of the objects beside this one.
    pub(super) fn end_key(&mut self) {
        if let [.., outer, object] = &mut self.objects[..self.depth]
            && let Some(key) = object.key()
        {
            outer.map_detector.add_key(key);
        }
    }

    /// Returns the innermost key, unless it is too long.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.objects[..self.depth].last().and_then(OpenObject::key)
    }

    /// Returns the JSON Pointer of all keys; `None` if one is too long or is not text.
    pub(super) fn pointer(&self) -> Option<String> {
        let mut pointer = String::new();
        let mut keys = self.objects[..self.depth].iter().map(OpenObject::key);
        keys.all(|key| key.is_some_and(|key| push_token(&mut pointer, key))).then_some(pointer)
    }
}
