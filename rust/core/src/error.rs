//! The error type of every function: what went wrong, and at which byte.

use std::fmt;

/// Result of every fallible function.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. The messages are read by models as well as by people, so they name the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind {
    /// The payload is not JSON (RFC 8259), or not the NDJSON it began as.
    InvalidJson(&'static str),
    /// The requested bytes are not UTF-8.
    InvalidText,
    /// An argument that is wrong for every payload.
    InvalidArgument(String),
    /// There is no value at this JSON Pointer.
    PathNotFound(String),
    /// There is no array or object at this JSON Pointer, so there are no items to index.
    NoItems(String),
    /// An operation of a patch that does not fit the document.
    PatchFailed(String),
    /// A pattern that does not compile, or compiles to something too large.
    InvalidPattern(String),
    /// Bytes that are not a serialized index, or an index of another payload.
    CorruptIndex(&'static str),
    /// A file that could not be read.
    Unreadable(String),
}

/// Reason given for a leading U+FEFF. It has a text of its own because the character is invisible.
pub(crate) const BYTE_ORDER_MARK: &str = "it starts with a byte order mark";

/// An [`ErrorKind`] and the byte offset where it was found (0 if there is none).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What went wrong.
    pub kind: ErrorKind,
    /// Offset of the first invalid byte; the payload's length if it ends too early.
    pub index: u64,
}

impl Error {
    pub(crate) fn json(index: u64, reason: &'static str) -> Self {
        Self { kind: ErrorKind::InvalidJson(reason), index }
    }

    /// Like [`Error::json`], but names a byte order mark at the start of the payload. Where `index` is 0,
    /// `data` must start at byte 0.
    pub(crate) fn json_or_bom(data: &[u8], index: u64, reason: &'static str) -> Self {
        let is_bom = index == 0 && data.starts_with("\u{feff}".as_bytes());
        Self::json(index, if is_bom { BYTE_ORDER_MARK } else { reason })
    }

    pub(crate) fn text(index: u64) -> Self {
        Self { kind: ErrorKind::InvalidText, index }
    }

    pub(crate) fn argument(reason: impl Into<String>) -> Self {
        Self { kind: ErrorKind::InvalidArgument(reason.into()), index: 0 }
    }

    pub(crate) fn path(pointer: &str) -> Self {
        Self { kind: ErrorKind::PathNotFound(pointer.to_owned()), index: 0 }
    }

    pub(crate) fn no_items(pointer: &str) -> Self {
        Self { kind: ErrorKind::NoItems(pointer.to_owned()), index: 0 }
    }

    pub(crate) fn patch(reason: impl Into<String>) -> Self {
        Self { kind: ErrorKind::PatchFailed(reason.into()), index: 0 }
    }

    pub(crate) fn pattern(reason: impl Into<String>) -> Self {
        Self { kind: ErrorKind::InvalidPattern(reason.into()), index: 0 }
    }

    pub(crate) fn index(reason: &'static str) -> Self {
        Self { kind: ErrorKind::CorruptIndex(reason), index: 0 }
    }

    pub(crate) fn unreadable(error: &std::io::Error) -> Self {
        Self { kind: ErrorKind::Unreadable(error.to_string()), index: 0 }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ErrorKind::InvalidJson(BYTE_ORDER_MARK) => {
                write!(f, "not valid JSON: {BYTE_ORDER_MARK}; remove it and try again")
            }
            ErrorKind::InvalidJson(reason) => {
                write!(f, "not valid JSON: {reason} at byte {}; read_text shows what is there", self.index)
            }
            ErrorKind::InvalidText => {
                write!(f, "not UTF-8 text at byte {}; read it as bytes instead", self.index)
            }
            ErrorKind::InvalidArgument(reason) | ErrorKind::PatchFailed(reason) => f.write_str(reason),
            ErrorKind::PathNotFound(pointer) => {
                write!(f, "nothing at path {}; outline() shows which paths exist", quote(pointer))
            }
            ErrorKind::NoItems(pointer) => {
                write!(
                    f,
                    "no array or object at path {}; outline() shows which paths lead to one",
                    quote(pointer)
                )
            }
            ErrorKind::InvalidPattern(reason) => write!(f, "pattern not usable: {reason}"),
            ErrorKind::CorruptIndex(reason) => {
                write!(f, "not an index of this payload: {reason}; index the payload again")
            }
            ErrorKind::Unreadable(reason) => {
                write!(f, "what was put aside cannot be read: {reason}; call again")
            }
        }
    }
}

impl std::error::Error for Error {}

/// Characters of an argument that a message repeats.
const MAX_QUOTED_CHARS: usize = 100;

/// Quotes an argument for a message; a long one is cut and ends in `…`.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("\"{}…\"", text[..end].escape_debug()),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_arguments_are_cut_between_characters() {
        assert_eq!(quote("a\"b"), r#""a\"b""#);
        assert_eq!(quote(&"é".repeat(100)), format!("\"{}\"", "é".repeat(100)));
        assert_eq!(quote(&"é".repeat(101)), format!("\"{}…\"", "é".repeat(100)));
        for error in [Error::path(&"/a".repeat(1 << 20)), Error::no_items(&"/\u{0}".repeat(1 << 20))] {
            assert!(error.to_string().len() < 1000);
        }
    }
}
