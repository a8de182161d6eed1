//! One error for every verb: what went wrong, and at which byte.

use std::fmt;

/// The result of every fallible verb.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. The message is written for whoever has to act on it, often a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind {
    /// The payload is not JSON (RFC 8259), or not the NDJSON it began as.
    InvalidJson(&'static str),
    /// The bytes asked for are not UTF-8.
    InvalidText,
    /// An argument no payload could satisfy.
    InvalidArgument(String),
    /// A JSON Pointer that leads nowhere in this payload.
    PathNotFound(String),
    /// A JSON Pointer to something else than an array, where items were asked for.
    NoArray(String),
    /// A pattern that does not compile, or compiles to something too large.
    InvalidPattern(String),
    /// Bytes that are not a serialized index, or an index of another payload.
    CorruptIndex(&'static str),
    /// A file that cannot be read, or not any more.
    Unreadable(String),
}

/// What is wrong with a payload that looks fine: the first character, U+FEFF, is invisible.
pub(crate) const BYTE_ORDER_MARK: &str = "it starts with a byte order mark";

/// An [`ErrorKind`] and the byte it was noticed at (0 where no byte is to blame).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What went wrong.
    pub kind: ErrorKind,
    /// The first byte that cannot be right; the payload's length if it ended too early.
    pub index: u64,
}

impl Error {
    pub(crate) fn json(index: u64, why: &'static str) -> Self {
        Self { kind: ErrorKind::InvalidJson(why), index }
    }

    /// As [`Error::json`], unless it is a byte order mark that the payload starts with. `data` begins at byte 0
    /// where `index` is 0.
    pub(crate) fn json_or_mark(data: &[u8], index: u64, why: &'static str) -> Self {
        let is_mark = index == 0 && data.starts_with("\u{feff}".as_bytes());
        Self::json(index, if is_mark { BYTE_ORDER_MARK } else { why })
    }

    pub(crate) fn text(index: u64) -> Self {
        Self { kind: ErrorKind::InvalidText, index }
    }

    pub(crate) fn argument(why: impl Into<String>) -> Self {
        Self { kind: ErrorKind::InvalidArgument(why.into()), index: 0 }
    }

    pub(crate) fn path(pointer: &str) -> Self {
        Self { kind: ErrorKind::PathNotFound(pointer.to_owned()), index: 0 }
    }

    pub(crate) fn no_array(pointer: &str) -> Self {
        Self { kind: ErrorKind::NoArray(pointer.to_owned()), index: 0 }
    }

    pub(crate) fn pattern(why: impl Into<String>) -> Self {
        Self { kind: ErrorKind::InvalidPattern(why.into()), index: 0 }
    }

    pub(crate) fn index(why: &'static str) -> Self {
        Self { kind: ErrorKind::CorruptIndex(why), index: 0 }
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
            ErrorKind::InvalidJson(why) => {
                write!(f, "not valid JSON: {why} at byte {}; read_text shows what is there", self.index)
            }
            ErrorKind::InvalidText => {
                write!(f, "not UTF-8 text at byte {}; read it as bytes instead", self.index)
            }
            ErrorKind::InvalidArgument(why) => f.write_str(why),
            ErrorKind::PathNotFound(pointer) => {
                write!(f, "nothing at path {}; outline() shows which paths exist", quoted(pointer))
            }
            ErrorKind::NoArray(pointer) => {
                write!(f, "no array at path {}; outline() shows which paths lead to one", quoted(pointer))
            }
            ErrorKind::InvalidPattern(why) => write!(f, "pattern not usable: {why}"),
            ErrorKind::CorruptIndex(why) => {
                write!(f, "not an index of this payload: {why}; index the payload again")
            }
            ErrorKind::Unreadable(why) => write!(f, "what was put aside cannot be read: {why}; call again"),
        }
    }
}

impl std::error::Error for Error {}

/// How much of what was passed in a message repeats: enough to recognize it.
const MAX_QUOTED_CHARS: usize = 100;

/// An argument as a message quotes it; a long one is cut and ends in `…`.
pub(crate) fn quoted(text: &str) -> String {
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
        assert_eq!(quoted("a\"b"), r#""a\"b""#);
        assert_eq!(quoted(&"é".repeat(100)), format!("\"{}\"", "é".repeat(100)));
        assert_eq!(quoted(&"é".repeat(101)), format!("\"{}…\"", "é".repeat(100)));
        for error in [Error::path(&"/a".repeat(1 << 20)), Error::no_array(&"/\u{0}".repeat(1 << 20))] {
            assert!(error.to_string().len() < 1000);
        }
    }
}
