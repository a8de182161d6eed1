//! The object keys from the root to the locator's position.

use crate::pointer::push_token;

/// Longest key that can be part of a path. Bounds what has to be remembered of a stream.
const MAX_KEY_BYTES: usize = 4096;

#[derive(Debug, Clone, Default)]
struct Key {
    text: Vec<u8>,
    is_too_long: bool,
}

/// A stack of raw keys. It reuses its memory, since a payload may have millions of objects.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    keys: Vec<Key>,
    depth: usize,
}

impl Keys {
    /// How many objects are open.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn enter(&mut self) {
        self.depth += 1;
        if self.keys.len() < self.depth {
            self.keys.push(Key::default());
        }
    }

    pub(super) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    pub(super) fn begin_text(&mut self) {
        if let Some(key) = self.keys[..self.depth].last_mut() {
            key.text.clear();
            key.is_too_long = false;
        }
    }

    /// Appends to the innermost key.
    pub(super) fn push_text(&mut self, text: &[u8]) {
        if let Some(key) = self.keys[..self.depth].last_mut() {
            key.is_too_long |= key.text.len() + text.len() > MAX_KEY_BYTES;
            if !key.is_too_long {
                key.text.extend_from_slice(text);
            }
        }
    }

    /// Returns the innermost key, unless it is too long.
    pub(super) fn last(&self) -> Option<&[u8]> {
        self.keys[..self.depth].last().filter(|key| !key.is_too_long).map(|key| &key.text[..])
    }

    /// Returns the JSON Pointer of all keys; `None` if one is too long or is not text.
    pub(super) fn pointer(&self) -> Option<String> {
        let mut pointer = String::new();
        let mut keys = self.keys[..self.depth].iter();
        keys.all(|key| !key.is_too_long && push_token(&mut pointer, &key.text)).then_some(pointer)
    }
}
