//! JSON Pointers (RFC 6901): locating a value without parsing the rest of the payload.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, Result, quote};
use crate::ndjson::{is_first_line, is_ndjson, lines, trim};
use crate::reader::{Kind, Reader, check_json};
use crate::scan::Isa;

/// A path to a value, e.g. `/users/0/name`; `""` is the whole payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    tokens: Vec<Token>,
}

/// One step of a pointer: an object key or an item number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Pointer {
    /// Parses a pointer; `~1` is a slash in a key, `~0` a tilde.
    pub fn parse(text: &str) -> Result<Self> {
        let tokens = match text.strip_prefix('/') {
            Some(path) => path.split('/').map(Token::parse).collect::<Option<_>>(),
            None => text.is_empty().then(Vec::new),
        };
        let tokens = tokens.ok_or_else(|| {
            Error::argument(format!(
                "{} is not a JSON Pointer: write \"/users/0/name\", with ~1 for a slash and ~0 for a tilde in a key, \
                 or \"\" for everything",
                quote(text)
            ))
        })?;
        Ok(Self { text: text.to_owned(), tokens })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens
    }
}

impl Token {
    fn parse(escaped: &str) -> Option<Self> {
        let mut parts = escaped.split('~');
        let mut text = parts.next()?.to_owned();
        for part in parts {
            let (literal, rest) = match part.as_bytes().first()? {
                b'0' => ('~', &part[1..]),
                b'1' => ('/', &part[1..]),
                _ => return None,
            };
            text.push(literal);
            text.push_str(rest);
        }
        Some(Self(text))
    }

    pub(crate) fn key(&self) -> &str {
        &self.0
    }

    /// Whether this token names the key whose content, between its quotes, is `raw`.
    pub(crate) fn matches_key(&self, raw: &[u8]) -> bool {
        match memchr::memchr(b'\\', raw) {
            None => raw == self.0.as_bytes(),
            Some(_) => unescape(raw).is_some_and(|key| key == self.0),
        }
    }

    /// Returns the token as an item number: digits without a leading zero.
    pub(crate) fn index(&self) -> Option<u64> {
        let digits = self.0.as_bytes();
        let is_plain =
            digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || !self.0.starts_with('0'));
        if is_plain { self.0.parse().ok() } else { None }
    }
}

/// Appends a raw key (the bytes between its quotes) to the text of a pointer. Returns `false` and appends
/// nothing if the key is not text, e.g. has a lone surrogate.
pub(crate) fn push_token(pointer: &mut String, raw_key: &[u8]) -> bool {
    let Some(key) = unescape(raw_key) else {
        return false;
    };
    push_key(pointer, &key);
    true
}

/// Appends a key to the text of a pointer.
pub(crate) fn push_key(pointer: &mut String, key: &str) {
    pointer.push('/');
    for char in key.chars() {
        match char {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            _ => pointer.push(char),
        }
    }
}

/// Decodes the content of a JSON string; `None` for invalid UTF-8, a broken escape or a lone surrogate.
pub(crate) fn unescape(raw: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(raw).ok()?;
    let Some((plain, mut rest)) = text.split_once('\\') else {
        return Some(Cow::Borrowed(text));
    };
    let mut out = String::with_capacity(text.len());
    out.push_str(plain);
    loop {
        let (char, after) = unescape_one(rest)?;
        out.push(char);
        let Some((plain, next)) = after.split_once('\\') else {
            out.push_str(after);
            return Some(Cow::Owned(out));
        };
        out.push_str(plain);
        rest = next;
    }
}

/// Decodes one escape whose backslash was already taken. Returns the character and the rest of the text.
fn unescape_one(rest: &str) -> Option<(char, &str)> {
    let char = match rest.as_bytes().first()? {
        b'u' => return unescape_unicode(&rest[1..]),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        &char @ (b'"' | b'\\' | b'/') => char::from(char),
        _ => return None,
    };
    Some((char, &rest[1..]))
}

fn unescape_unicode(rest: &str) -> Option<(char, &str)> {
    let (first, rest) = hex4(rest)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Some((char::from_u32(first)?, rest));
    }
    let (second, rest) = hex4(rest.strip_prefix("\\u")?)?;
    let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    Some((char::from_u32(0x10000 + ((first - 0xd800) << 10) + low)?, rest))
}

fn hex4(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    // `from_str_radix` alone would accept a sign.
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { Some((u32::from_str_radix(digits, 16).ok()?, rest)) } else { None }
}

/// Returns the span of the value at `pointer`, without white space around it.
///
/// Of equal keys the first one counts. In NDJSON the first token is the number of a value. Reading stops
/// after the value. The value is validated, but nothing that was skipped on the way to it.
pub fn locate(data: &[u8], pointer: &Pointer) -> Result<Range<usize>> {
    locate_with(Isa::detect(), data, pointer)
}

fn locate_with(isa: Isa, data: &[u8], pointer: &Pointer) -> Result<Range<usize>> {
    let Some((first, rest)) = pointer.tokens().split_first() else {
        return locate_root(isa, data);
    };
    let found = if is_ndjson(data, isa) {
        let number = first.index().and_then(|number| usize::try_from(number).ok());
        match number.and_then(|number| lines(data).nth(number)) {
            Some(line) => follow(Reader::at(&data[..line.end], line.start, isa), data, rest)?,
            None => None,
        }
    } else {
        follow(Reader::new(data, isa), data, pointer.tokens())?
    };
    found.ok_or_else(|| Error::path(pointer.as_str()))
}

fn locate_root(isa: Isa, data: &[u8]) -> Result<Range<usize>> {
    let mut reader = Reader::new(data, isa);
    let value = reader.take_value()?;
    if !is_first_line(&mut reader, data, isa)? {
        return Ok(value);
    }
    let lines = trim(data, 0..data.len());
    check_json(isa, data, lines.clone()).map(|()| lines)
}

fn follow(mut reader: Reader<'_>, data: &[u8], tokens: &[Token]) -> Result<Option<Range<usize>>> {
    if enter(&mut reader, data, tokens)? { reader.take_value().map(Some) } else { Ok(None) }
}

/// Moves from the start of a document to the value that the tokens lead to; `false` if there is none.
pub(crate) fn enter(reader: &mut Reader<'_>, data: &[u8], tokens: &[Token]) -> Result<bool> {
    for token in tokens {
        let is_found = match reader.kind()? {
            Kind::Object => enter_object(reader, data, token)?,
            Kind::Array => enter_array(reader, token)?,
            _ => false,
        };
        if !is_found {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Moves to the value of a key; `false` if the object does not have it.
fn enter_object(reader: &mut Reader<'_>, data: &[u8], token: &Token) -> Result<bool> {
    reader.open();
    let mut is_first = true;
    while let Some(key) = reader.next_key(is_first)? {
        if token.matches_key(&data[key]) {
            return Ok(true);
        }
        reader.skip()?;
        is_first = false;
    }
    Ok(false)
}

/// Moves to an item; `false` if the array does not have it.
fn enter_array(reader: &mut Reader<'_>, token: &Token) -> Result<bool> {
    let Some(index) = token.index() else {
        return Ok(false);
    };
    reader.open();
    if index == 0 {
        return Ok(!reader.take(b']')?);
    }
    reader.skip_values(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;
    use serde_json::Value;

    fn find(data: &[u8], pointer: &str) -> Result<Range<usize>> {
        let pointer = Pointer::parse(pointer)?;
        let found: Vec<_> =
            Isa::available().into_iter().map(|isa| locate_with(isa, data, &pointer)).collect();
        assert!(found.iter().all(|result| *result == found[0]), "{found:?}");
        locate(data, &pointer)
    }

    fn get<'a>(data: &'a str, pointer: &str) -> Option<&'a str> {
        match find(data.as_bytes(), pointer) {
            Ok(span) => Some(&data[span]),
            Err(Error { kind: ErrorKind::PathNotFound(path), .. }) if path == pointer => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Collects every pointer into a value, and what it points to.
    fn every_pointer(value: &Value, at: &str, out: &mut Vec<(String, Value)>) {
        out.push((at.to_owned(), value.clone()));
        match value {
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    every_pointer(item, &format!("{at}/{i}"), out);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    every_pointer(member, &format!("{at}/{key}"), out);
                }
            }
            _ => {}
        }
    }

    fn parse(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    /// Returns the text with every character as a `\u` escape.
    fn escape_all(text: &str) -> String {
        text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()
    }

    #[test]
    fn rejects_invalid_pointers() {
        for text in ["a", "#/a", " ", "/~", "/~2", "/a~/b", "0/"] {
            let error = Pointer::parse(text).unwrap_err();
            assert!(error.to_string().contains("/users/0/name"), "{error}");
        }
    }

    #[test]
    fn follows_the_examples_of_the_rfc() {
        let data = r#"{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5,
            "k\"l": 6, " ": 7, "m~n": 8}"#;
        let pairs = [("/foo", r#"["bar", "baz"]"#), ("/foo/0", "\"bar\""), ("/", "0"), ("/a~1b", "1")];
        for (pointer, value) in pairs {
            assert_eq!(get(data, pointer), Some(value));
        }
        let pairs =
            [("/c%d", "2"), ("/e^f", "3"), ("/g|h", "4"), ("/i\\j", "5"), ("/k\"l", "6"), ("/ ", "7")];
        for (pointer, value) in pairs {
            assert_eq!(get(data, pointer), Some(value));
        }
        assert_eq!(get(data, "/m~0n"), Some("8"));
        assert_eq!(get(data, ""), Some(data));
    }

    #[test]
    fn missing_paths_are_not_found() {
        let data = r#" {"a": [10, [], {"b": "c"}], "01": 1} "#;
        for pointer in
            ["/b", "/a/-", "/a/3", "/a/00", "/a/01", "/a/+1", "/a/1/0", "/a/0/0", "/a/2/b/0", "/a/"]
        {
            assert_eq!(get(data, pointer), None, "{pointer}");
        }
        assert_eq!(get(data, "/a/99999999999999999999"), None);
        assert_eq!(get(data, "/01"), Some("1"));
    }

    #[test]
    fn the_first_of_equal_keys_counts() {
        assert_eq!(get(r#"{"a": 1, "\u0061": 2, "a": 3}"#, "/a"), Some("1"));
        assert_eq!(get(r#"{"b": 1, "\u0061": 2, "a": 3}"#, "/a"), Some("2"));
    }

    #[test]
    fn the_first_token_numbers_the_lines_of_ndjson() {
        let data = "\n{\"a\": 1}\r\n\n [7, 8] \n\"x\"\n";
        assert_eq!(get(data, "/0/a"), Some("1"));
        assert_eq!(get(data, "/1"), Some("[7, 8]"));
        assert_eq!(get(data, "/1/1"), Some("8"));
        assert_eq!(get(data, "/2"), Some("\"x\""));
        assert_eq!(get(data, "/3"), None);
        assert_eq!(get(data, "/a"), None);
        assert_eq!(get(data, ""), Some(data.trim()));
    }

    #[test]
    fn errors_name_the_first_invalid_byte() {
        for (data, index) in [
            ("", 0),
            (" ", 1),
            ("1 2", 2),
            ("[1] x", 4),
            ("{\"a\": tru}", 6),
            ("[1", 2),
            ("{\"a\": [1,]}", 9),
            ("[1 2", 3),
            ("[1}", 2),
            ("1\n[}", 3),
        ] {
            let pointer = if data.starts_with('{') { "/a" } else { "" };
            let error = find(data.as_bytes(), pointer).unwrap_err();
            assert!(matches!(error.kind, ErrorKind::InvalidJson(_)), "{error}");
            assert_eq!(error.index, index, "{data}");
        }
    }

    #[test]
    fn keys_become_tokens() {
        let mut pointer = String::new();
        assert!(push_token(&mut pointer, br"a~\/b"));
        assert!(push_token(&mut pointer, br"\ud83d\ude00\n"));
        assert!(!push_token(&mut pointer, br"\ud83d"));
        assert!(!push_token(&mut pointer, br"\ude00\ud83d"));
        assert!(!push_token(&mut pointer, br"\ud83d\u0041"));
        assert!(!push_token(&mut pointer, b"\xff"));
        assert_eq!(pointer, "/a~0~1b/😀\n");
    }

    proptest! {
        #[test]
        fn every_value_is_found(value in crate::testing::json()) {
            let (compact, pretty) =
                (serde_json::to_vec(&value).unwrap(), serde_json::to_vec_pretty(&value).unwrap());
            // serde_json does not read every float back as it was.
            let value = parse(&compact);
            let mut all = Vec::new();
            every_pointer(&value, "", &mut all);
            for (pointer, expected) in &all {
                for data in [&compact, &pretty] {
                    let span = find(data, pointer).unwrap();
                    prop_assert!(!data[span.start].is_ascii_whitespace() && !data[span.end - 1].is_ascii_whitespace());
                    prop_assert_eq!(&parse(&data[span]), expected);
                }
            }
        }

        #[test]
        fn escaped_keys_are_the_same_keys(text in crate::testing::text()) {
            let token = Token(text.clone());
            let raw = serde_json::to_string(&text).unwrap();
            let raw = &raw.as_bytes()[1..raw.len() - 1];
            let escaped = escape_all(&text);
            prop_assert!(token.matches_key(raw) && token.matches_key(escaped.as_bytes()));
            prop_assert!(!token.matches_key(&[raw, b"x"].concat()));
            prop_assert!(!token.matches_key(&[escaped.as_bytes(), b"\\n"].concat()));
            let mut pointer = String::new();
            prop_assert!(push_token(&mut pointer, escaped.as_bytes()));
            prop_assert_eq!(Pointer::parse(&pointer).unwrap().tokens, [token]);
        }

        #[test]
        fn unescapes_like_serde(raw in r#"([a-c漢]|\\[bfnrtux/\\"]|\\u(d83d|dbff|de00|dc00|dfff|00e9)|[0-9]){0,12}"#) {
            let serde = serde_json::from_str::<String>(&format!("\"{raw}\"")).ok();
            prop_assert_eq!(unescape(raw.as_bytes()).map(Cow::into_owned), serde);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(data in prop::collection::vec(any::<u8>(), 0..200), pointer in "(/[0-3a]?){0,4}") {
            let _ = find(&data, &pointer);
        }

        #[test]
        fn broken_json_does_not_panic(
            value in crate::testing::json(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
            pointer in "(/[0-3a]?){0,4}",
        ) {
            let mut data = serde_json::to_vec(&value).unwrap();
            let at = at.index(data.len());
            data[at] = byte;
            let _ = find(&data, &pointer);
            let _ = find(&data[..at], &pointer);
        }
    }
}
