//! Text as a JSON string, and its size once it is escaped.
//!
//! Text in a tool result is escaped at least once when it is sent, and text inside JSON inside text twice.
//! Budgets bound the bytes that are sent, so pages and previews are measured by their escaped size. The
//! quotes around a string are not counted.

use crate::error::{Error, Result};

/// How many times text will be JSON-escaped before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escaping {
    /// Sent as is.
    Never,
    /// Sent as a JSON string.
    Once,
    /// Sent as a JSON string inside a JSON string.
    Twice,
}

impl Escaping {
    /// Converts a number of levels: 0, 1 or 2.
    pub fn from_levels(levels: u64) -> Result<Self> {
        match levels {
            0 => Ok(Self::Never),
            1 => Ok(Self::Once),
            2 => Ok(Self::Twice),
            _ => Err(Error::argument(format!("escape_levels must be at most 2, not {levels}"))),
        }
    }

    /// Returns the escaped size of the largest character, which is the smallest budget that has room for any
    /// character.
    #[must_use]
    pub fn max_char_len(self) -> usize {
        match self {
            Self::Never => 4,
            Self::Once => 6,
            Self::Twice => 7,
        }
    }

    /// Rejects a budget that is too small for some character, so that every page makes progress.
    pub(crate) fn check_budget(self, max_bytes: u64) -> Result<usize> {
        let min_bytes = self.max_char_len();
        match usize::try_from(max_bytes).unwrap_or(usize::MAX) {
            budget if budget >= min_bytes => Ok(budget),
            _ => Err(Error::argument(format!("max_bytes must be at least {min_bytes}, not {max_bytes}"))),
        }
    }

    /// Returns the size of `text` once escaped.
    #[must_use]
    pub fn escaped_len(self, text: &[u8]) -> usize {
        match self {
            Self::Never => text.len(),
            Self::Once => escaped_len::<1>(text),
            Self::Twice => escaped_len::<2>(text),
        }
    }

    /// Returns the length of the longest prefix of `text` that takes at most `budget` bytes once escaped. It
    /// may end inside a character. The cost is bounded by the budget, not by the text.
    #[must_use]
    pub fn fit(self, text: &[u8], budget: usize) -> usize {
        match self {
            Self::Never => text.len().min(budget),
            Self::Once => fit::<1>(text, budget),
            Self::Twice => fit::<2>(text, budget),
        }
    }
}

/// Appends a text as a JSON string. A lone surrogate in WTF-8 is escaped, other bytes that are not UTF-8 become
/// U+FFFD.
pub(crate) fn push_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    while !rest.is_empty() {
        let valid = match std::str::from_utf8(rest) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default(),
        };
        push_escaped(valid, out);
        rest = &rest[valid.len()..];
        rest = match rest {
            [] => rest,
            [0xed, second @ 0xa0..=0xbf, third @ 0x80..=0xbf, after @ ..] => {
                let unit = 0xd000 | u32::from(second & 0x3f) << 6 | u32::from(third & 0x3f);
                out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                after
            }
            [_, after @ ..] => {
                out.extend_from_slice("\u{fffd}".as_bytes());
                after
            }
        };
    }
    out.push(b'"');
}

fn push_escaped(text: &str, out: &mut Vec<u8>) {
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
}

/// Bytes whose escaped sizes always sum up within a `u8`. Without widening, the loop compiles to SIMD.
const CHUNK_LEN: usize = 32;

/// Returns the escaped size of one byte, without branches or tables so that loops compile to SIMD.
#[inline(always)]
fn escaped_byte_len<const LEVELS: u8>(byte: u8) -> u8 {
    let is_quoted = (byte == b'"') | (byte == b'\\');
    let is_control = byte < 0x20;
    // Controls with a short escape (`\b \t \n \f \r`) instead of `\u00XX`: 0x08 to 0x0d, except 0x0b.
    let has_short_escape = (byte.wrapping_sub(0x08) < 6) & (byte != 0x0b);
    let extra = (1 << LEVELS) - 1;
    1 + if is_quoted { extra } else { 0 } + if is_control { 4 + LEVELS } else { 0 }
        - if has_short_escape { 4 } else { 0 }
}

fn escaped_chunk_len<const LEVELS: u8>(chunk: &[u8; CHUNK_LEN]) -> usize {
    usize::from(chunk.iter().map(|&byte| escaped_byte_len::<LEVELS>(byte)).sum::<u8>())
}

fn escaped_len<const LEVELS: u8>(text: &[u8]) -> usize {
    let (chunks, rest) = text.as_chunks();
    let mut total = 0;
    for chunk in chunks {
        total += escaped_chunk_len::<LEVELS>(chunk);
    }
    for &byte in rest {
        total += usize::from(escaped_byte_len::<LEVELS>(byte));
    }
    total
}

fn fit<const LEVELS: u8>(text: &[u8], budget: usize) -> usize {
    let mut left = budget;
    let mut end = 0;
    for chunk in text.as_chunks().0 {
        match left.checked_sub(escaped_chunk_len::<LEVELS>(chunk)) {
            Some(rest) => left = rest,
            None => break,
        }
        end += CHUNK_LEN;
    }
    for &byte in &text[end..] {
        match left.checked_sub(usize::from(escaped_byte_len::<LEVELS>(byte))) {
            Some(rest) => left = rest,
            None => break,
        }
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [(Escaping, u32); 3] = [(Escaping::Never, 0), (Escaping::Once, 1), (Escaping::Twice, 2)];

    /// Reference: escapes the text.
    fn naive(text: &str, levels: u32) -> usize {
        let escape = |text: String| {
            let quoted = serde_json::to_string(&text).unwrap();
            quoted[1..quoted.len() - 1].to_owned()
        };
        (0..levels).fold(text.to_owned(), |text, _| escape(text)).len()
    }

    #[test]
    fn sizes_match_escaping_each_character() {
        for (escaping, levels) in ALL {
            let sizes = ('\0'..=char::MAX).step_by(7).chain('\0'..='\u{7ff}').map(|c| {
                let text = c.to_string();
                let size = escaping.escaped_len(text.as_bytes());
                assert_eq!(size, naive(&text, levels), "{c:?} at {levels}");
                size
            });
            assert_eq!(sizes.max(), Some(escaping.max_char_len()));
        }
    }

    #[test]
    fn the_largest_chunk_does_not_overflow() {
        let text = "\u{1}".repeat(3 * CHUNK_LEN);
        assert_eq!(Escaping::Twice.escaped_len(text.as_bytes()), naive(&text, 2));
    }

    #[test]
    fn levels_are_zero_to_two() {
        for (escaping, levels) in ALL {
            assert_eq!(Escaping::from_levels(levels.into()), Ok(escaping));
        }
        assert!(Escaping::from_levels(3).is_err());
        assert!(Escaping::from_levels(u64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn sizes_and_prefixes_match_escaping(
            text in prop::collection::vec(crate::testing::text(), 0..12).prop_map(|texts| texts.concat()),
            budget in 0..700_usize,
        ) {
            for (escaping, levels) in ALL {
                prop_assert_eq!(escaping.escaped_len(text.as_bytes()), naive(&text, levels));
                let end = escaping.fit(text.as_bytes(), budget);
                let end = (0..=end).rev().find(|&at| text.is_char_boundary(at)).unwrap();
                let naive = (0..=text.len())
                    .filter(|&at| text.is_char_boundary(at) && naive(&text[..at], levels) <= budget)
                    .max();
                prop_assert_eq!(Some(end), naive);
            }
        }
    }
}
