//! Token reader for JSON that validates what it reads, but not what it skips.
//!
//! For functions that return a few values of a large document: those must be valid, the rest is skipped in
//! 64-byte blocks.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::scan::nesting::{Nesting, Stop};
use crate::scan::{Isa, closing_quote};
use crate::utf8::text_error;
use crate::validate::Validator;

/// Kind of a value, by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Number,
    Bool,
    Null,
}

impl Kind {
    fn of(first: u8) -> Option<Self> {
        Some(match first {
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::String,
            b'-' | b'0'..=b'9' => Self::Number,
            b't' | b'f' => Self::Bool,
            b'n' => Self::Null,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    data: &'a [u8],
    pos: usize,
    isa: Isa,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(data: &'a [u8], isa: Isa) -> Self {
        Self { data, pos: 0, isa }
    }

    /// Creates a reader at `pos`, which must be the start of a token.
    pub(crate) fn at(data: &'a [u8], pos: usize, isa: Isa) -> Self {
        Self { data, pos: pos.min(data.len()), isa }
    }

    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    /// Returns a reader at the same position, for a payload that ends with `window`.
    pub(crate) fn within<'b>(&self, window: &'b [u8]) -> Reader<'b> {
        Reader::at(window, self.pos, self.isa)
    }

    /// Continues at `pos`, which another reader of the same payload has reached.
    pub(crate) fn jump(&mut self, pos: usize) {
        self.pos = pos.min(self.data.len());
    }

    pub(crate) fn fail(&self, reason: &'static str) -> Error {
        Error::json(self.pos as u64, reason)
    }

    /// Returns the next byte that is not white space, without taking it; `None` at the end of the payload.
    pub(crate) fn peek_or_end(&mut self) -> Option<u8> {
        while let Some(&byte) = self.data.get(self.pos) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.pos += 1;
        }
        None
    }

    /// Returns the next byte that is not white space, without taking it.
    pub(crate) fn peek(&mut self) -> Result<u8> {
        self.peek_or_end().ok_or_else(|| self.fail("unexpected end"))
    }

    /// Takes `byte` if it is next.
    pub(crate) fn take(&mut self, byte: u8) -> Result<bool> {
        let is_next = self.peek()? == byte;
        self.pos += usize::from(is_next);
        Ok(is_next)
    }

    /// Takes `bytes` if they are next.
    #[inline]
    pub(crate) fn take_all(&mut self, bytes: &[u8]) -> bool {
        let is_next = self.data[self.pos..].starts_with(bytes);
        self.pos += if is_next { bytes.len() } else { 0 };
        is_next
    }

    /// Returns the kind of the next value, without taking any of it.
    pub(crate) fn kind(&mut self) -> Result<Kind> {
        let first = self.peek()?;
        Kind::of(first).ok_or_else(|| Error::json_or_bom(self.data, self.pos as u64, "expected a value"))
    }

    /// Takes the opening bracket of a container that `kind` has reported.
    pub(crate) fn open(&mut self) {
        self.pos += 1;
    }

    /// Moves to the next item of an array, past the comma. After the last one, takes the closing bracket and
    /// returns `false`.
    pub(crate) fn next_item(&mut self, is_first: bool) -> Result<bool> {
        if self.take(b']')? {
            return Ok(false);
        }
        if !is_first && !self.take(b',')? {
            return Err(self.fail("expected a comma or a closing bracket"));
        }
        Ok(true)
    }

    /// Takes the next key of an object, and its colon. After the last one, takes the closing brace and
    /// returns `None`. The span is the raw key between its quotes.
    pub(crate) fn next_key(&mut self, is_first: bool) -> Result<Option<Range<usize>>> {
        if self.take(b'}')? {
            return Ok(None);
        }
        if !is_first && !self.take(b',')? {
            return Err(self.fail("expected a comma or a closing brace"));
        }
        if self.peek()? != b'"' {
            return Err(self.fail("expected a key"));
        }
        let key = self.take_string()?;
        if !self.take(b':')? {
            return Err(self.fail("expected a colon"));
        }
        Ok(Some(key))
    }

    /// Takes a string and validates it. The span is the raw content between its quotes.
    pub(crate) fn take_string(&mut self) -> Result<Range<usize>> {
        let start = self.pos + 1;
        let end = self.string_end(start)?;
        check_string(self.data, start..end)?;
        self.pos = end + 1;
        Ok(start..end)
    }

    /// Takes a number, `true`, `false` or `null` and validates it.
    pub(crate) fn take_scalar(&mut self) -> Result<Range<usize>> {
        let span = self.scalar_span();
        let text = &self.data[span.clone()];
        let is_valid = match text.first() {
            Some(b't') => text == b"true",
            Some(b'f') => text == b"false",
            Some(b'n') => text == b"null",
            _ => is_number(text),
        };
        if !is_valid {
            return Err(self.fail("expected a value"));
        }
        self.pos = span.end;
        Ok(span)
    }

    /// Takes any value and validates it.
    pub(crate) fn take_value(&mut self) -> Result<Range<usize>> {
        match self.kind()? {
            Kind::Object | Kind::Array => self.take_container(),
            Kind::String => self.take_string().map(|content| content.start - 1..content.end + 1),
            Kind::Number | Kind::Bool | Kind::Null => self.take_scalar(),
        }
    }

    fn take_container(&mut self) -> Result<Range<usize>> {
        let start = self.pos;
        // An unterminated container is validated too: an earlier byte may be the first invalid one.
        let end = self.skip().map_or(self.data.len(), |span| span.end);
        check_json(self.isa, self.data, start..end).map(|()| start..end)
    }

    /// Skips any value. The span includes its brackets or quotes.
    pub(crate) fn skip(&mut self) -> Result<Range<usize>> {
        let kind = self.kind()?;
        let start = self.pos;
        self.pos = match kind {
            Kind::Object | Kind::Array => {
                self.pos += 1;
                self.skip_rest()?;
                self.pos
            }
            Kind::String => self.string_end(start + 1)? + 1,
            _ => self.scalar_span().end,
        };
        Ok(start..self.pos)
    }

    /// Skips the rest of a container, closing bracket included. Returns the number of commas directly inside;
    /// after a value, that is the number of values that follow.
    pub(crate) fn skip_rest(&mut self) -> Result<u64> {
        let rest = &self.data[self.pos..];
        let progress = Nesting::inside().close(self.isa, rest);
        self.pos += progress.consumed;
        if progress.stop == Stop::Closed { Ok(progress.commas) } else { Err(self.fail("unexpected end")) }
    }

    /// Skips `count` values and the comma after each, from right after an array's bracket or a comma directly
    /// inside. Returns `false` if the array has fewer; its closing bracket is then taken.
    pub(crate) fn skip_values(&mut self, count: u64) -> Result<bool> {
        if count == 0 {
            return Ok(true);
        }
        let rest = &self.data[self.pos..];
        let progress = Nesting::inside().seek(self.isa, rest, count);
        self.pos += progress.consumed;
        match progress.stop {
            Stop::Reached => Ok(true),
            Stop::Closed => Ok(false),
            Stop::Exhausted => Err(self.fail("unexpected end")),
        }
    }

    /// Returns the closing quote of the string whose content starts at `start`.
    fn string_end(&self, start: usize) -> Result<usize> {
        let content = self.data.get(start..).unwrap_or_default();
        let end = match memchr::memchr2(b'"', b'\\', content) {
            Some(found) if content[found] == b'"' => Some(found),
            // A string with one escape usually has more, and a `memchr` call for each would cost more than
            // scanning blocks.
            Some(found) => closing_quote(self.isa, &content[found..]).map(|end| found + end),
            None => None,
        };
        end.map(|end| start + end).ok_or_else(|| Error::json(self.data.len() as u64, "unexpected end"))
    }

    fn scalar_span(&self) -> Range<usize> {
        let rest = &self.data[self.pos..];
        let is_end = |byte: &u8| {
            matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' | b'"')
                || matches!(byte | 0x20, b'{' | b'}')
        };
        let len = rest.iter().position(is_end).unwrap_or(rest.len());
        self.pos..self.pos + len
    }
}

/// Validates a whole value, or NDJSON.
pub(crate) fn check_json(isa: Isa, data: &[u8], span: Range<usize>) -> Result<()> {
    let mut validator = Validator::new(isa);
    let result = validator.feed(&data[span.clone()]).and_then(|()| validator.finish());
    result.map_err(|error| Error { index: span.start as u64 + error.index, ..error })
}

/// Validates the content of a string: UTF-8, no control characters, no broken escapes.
pub(crate) fn check_string(data: &[u8], span: Range<usize>) -> Result<()> {
    let content = &data[span.clone()];
    if is_plain(content) {
        return Ok(());
    }
    if let Some(error) = text_error(content) {
        return Err(Error::json((span.start + error.valid_up_to()) as u64, "not UTF-8"));
    }
    let mut pos = 0;
    while let Some(found) = content[pos..].iter().position(|&byte| byte < 0x20 || byte == b'\\') {
        pos += found;
        let fail = |at: usize, reason| Err(Error::json((span.start + at) as u64, reason));
        if content[pos] != b'\\' {
            return fail(pos, "control character in a string");
        }
        match content.get(pos + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => pos += 2,
            Some(b'u') => {
                let digits = content[pos + 2..].iter().take(4).take_while(|byte| byte.is_ascii_hexdigit());
                let digits = digits.count();
                if digits < 4 {
                    return fail(pos + 2 + digits, "expected a hexadecimal digit");
                }
                pos += 6;
            }
            _ => return fail(pos + 1, "unknown escape"),
        }
    }
    Ok(())
}

/// Whether all bytes are ASCII and none is a backslash or a control character. True for most strings, and
/// tested eight bytes at a time.
fn is_plain(content: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let (words, rest) = content.as_chunks::<8>();
    words.iter().all(|&word| {
        let word = u64::from_ne_bytes(word);
        let backslash = word ^ (ONES * b'\\' as u64);
        // A subtraction borrows from a byte's high bit only if the byte, or one below it, was smaller.
        (word | word.wrapping_sub(ONES * 0x20) | backslash.wrapping_sub(ONES)) & HIGH == 0
    }) && rest.iter().all(|&byte| matches!(byte, 0x20..0x80) && byte != b'\\')
}

/// Whether `text` is a number as RFC 8259 writes them.
pub(crate) fn is_number(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut rest = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest[0] == b'0') {
        return false;
    }
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = match exponent {
            [b'+' | b'-', unsigned @ ..] => unsigned,
            unsigned => unsigned,
        };
        return !exponent.is_empty() && digits(exponent) == exponent.len();
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads and validates the next value, token by token.
    fn read(reader: &mut Reader<'_>) -> Result<()> {
        match reader.kind()? {
            Kind::Object => {
                reader.open();
                let mut is_first = true;
                while reader.next_key(is_first)?.is_some() {
                    is_first = false;
                    read(reader)?;
                }
            }
            Kind::Array => {
                reader.open();
                let mut is_first = true;
                while reader.next_item(is_first)? {
                    is_first = false;
                    read(reader)?;
                }
            }
            Kind::String => {
                reader.take_string()?;
            }
            _ => {
                reader.take_scalar()?;
            }
        }
        Ok(())
    }

    fn is_json(data: &[u8]) -> bool {
        let mut reader = Reader::new(data, Isa::detect());
        read(&mut reader).is_ok() && reader.peek_or_end().is_none()
    }

    proptest! {
        /// serde_json rejects lone surrogates and numbers out of range, RFC 8259 does not, so these are not
        /// generated.
        #[test]
        fn accepts_what_serde_accepts(
            data in prop::string::string_regex(r#"[\[\]{},:" ]{0,4}(\\[unbx"][0-7a-c]{0,5}|[-+.eE0-9]{1,4}|true|null|"){0,6}[\[\]{},:" ]{0,4}"#).unwrap(),
        ) {
            let serde = serde_json::from_str::<serde::de::IgnoredAny>(&data).is_ok();
            prop_assert_eq!(is_json(data.as_bytes()), serde, "{}", data);
        }

        #[test]
        fn is_plain_matches_a_byte_loop(
            content in prop::collection::vec(prop_oneof![8 => b' '..=b'~', 1 => any::<u8>()], 0..20),
        ) {
            let is_plain_byte = |&byte: &u8| byte >= 0x20 && byte.is_ascii() && byte != b'\\';
            prop_assert_eq!(is_plain(&content), content.iter().all(is_plain_byte));
        }

        #[test]
        fn skipping_and_reading_end_at_the_same_byte(value in crate::testing::json()) {
            let text = serde_json::to_vec(&value).unwrap();
            let data = [&text[..], b" , 1"].concat();
            for isa in Isa::available() {
                let mut reader = Reader::new(&data, isa);
                prop_assert_eq!(reader.skip().unwrap(), 0..text.len());
                let mut reader = Reader::new(&data, isa);
                read(&mut reader).unwrap();
                prop_assert_eq!(reader.pos(), text.len());
            }
        }
    }
}
