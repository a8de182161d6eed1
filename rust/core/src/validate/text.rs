//! Validates UTF-8 in pieces that may end inside a character.

use crate::error::Error;
use crate::utf8::text_error;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Utf8Validator {
    /// Offset of the next piece.
    pos: u64,
    /// The first bytes of a character that the next piece continues.
    partial: [u8; 4],
    partial_len: usize,
}

impl Utf8Validator {
    /// Creates a validator for the bytes from `pos` on, where a character begins.
    pub(crate) fn starting_at(pos: u64) -> Self {
        Self { pos, ..Self::default() }
    }

    /// Returns an error at the first byte that is not UTF-8, if this piece shows that there is one.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Option<Error> {
        let start = self.pos;
        self.pos += bytes.len() as u64;
        let mut at = 0;
        while self.partial_len > 0 && at < bytes.len() {
            self.partial[self.partial_len] = bytes[at];
            self.partial_len += 1;
            at += 1;
            match str::from_utf8(&self.partial[..self.partial_len]) {
                Ok(_) => *self = Self::starting_at(self.pos),
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Some(not_text(start + at as u64 - self.partial_len as u64)),
            }
        }
        if self.partial_len > 0 {
            return None;
        }
        // A piece may end in the first bytes of a character. They are split off, so that the rest is read
        // only once.
        let (whole, partial) = bytes[at..].split_at(bytes.len() - at - incomplete_len(&bytes[at..]));
        if let Some(error) = text_error(whole) {
            return Some(not_text(start + (at + error.valid_up_to()) as u64));
        }
        self.partial[..partial.len()].copy_from_slice(partial);
        self.partial_len = partial.len();
        None
    }

    /// Returns an error if the last character is incomplete.
    pub(crate) fn finish(&self) -> Option<Error> {
        (self.partial_len > 0).then(|| not_text(self.pos - self.partial_len as u64))
    }
}

/// Returns how many bytes at the end may be the start of a character that continues.
fn incomplete_len(bytes: &[u8]) -> usize {
    let is_incomplete = |len: &usize| {
        let Some(end) = bytes.len().checked_sub(*len) else { return false };
        str::from_utf8(&bytes[end..])
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..4).find(is_incomplete).unwrap_or(0)
}

fn not_text(index: u64) -> Error {
    Error::json(index, "not UTF-8")
}
