//! The keys that lead from the root to where a locator stands.

use crate::pointer::push_token;

/// Longer keys lead nowhere: what is remembered of a stream stays small.
const MOST_BYTES: usize = 4096;

#[derive(Debug, Clone, Default)]
struct Key {
    text: Vec<u8>,
    is_too_long: bool,
}

/// A stack of keys as they stand in the payload. It keeps its memory: objects come and go by the million.
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

    /// Adds to the innermost key.
    pub(super) fn push_text(&mut self, text: &[u8]) {
        if let Some(key) = self.keys[..self.depth].last_mut() {
            key.is_too_long |= key.text.len() + text.len() > MOST_BYTES;
            if !key.is_too_long {
                key.text.extend_from_slice(text);
            }
        }
    }

    /// The innermost key, unless it is too long.
    pub(super) fn last(&self) -> Option<&[u8]> {
        self.keys[..self.depth].last().filter(|key| !key.is_too_long).map(|key| &key.text[..])
    }

    /// The JSON Pointer of all keys; `None` if one is too long or cannot be written in one.
    pub(super) fn pointer(&self) -> Option<String> {
        let mut pointer = String::new();
        let mut keys = self.keys[..self.depth].iter();
        keys.all(|key| !key.is_too_long && push_token(&mut pointer, &key.text)).then_some(pointer)
    }
}
