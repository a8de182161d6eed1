use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::testing;

const TOKEN: &str = "0123abcd";

fn split(message: &[u8], limits: Limits) -> Result<Dissection> {
    dissect(message, TOKEN, limits)
}

/// Reference: reads valid JSON by recursion.
struct Naive<'a> {
    data: &'a [u8],
    pos: usize,
    limits: Limits,
    holes: Vec<Range<u64>>,
}

impl Naive<'_> {
    fn skip_white(&mut self) {
        while self.data.get(self.pos).is_some_and(u8::is_ascii_whitespace) {
            self.pos += 1;
        }
    }

    fn next(&mut self) -> u8 {
        self.skip_white();
        self.pos += 1;
        self.data[self.pos - 1]
    }

    fn hole(&mut self, start: usize) -> String {
        self.holes.push(start as u64..self.pos as u64);
        format!("\"{TOKEN}:{}\"", self.holes.len() - 1)
    }

    fn token(&mut self) -> String {
        let start = self.pos;
        if self.data[start] == b'"' {
            self.pos += 1;
            while self.data[self.pos] != b'"' {
                self.pos += if self.data[self.pos] == b'\\' { 2 } else { 1 };
            }
            self.pos += 1;
        } else {
            while self.data.get(self.pos).is_some_and(|byte| !b" \n,]}".contains(byte)) {
                self.pos += 1;
            }
        }
        String::from_utf8(self.data[start..self.pos].to_vec()).unwrap()
    }

    fn fits_skeleton(&self, token: &str) -> bool {
        match serde_json::from_str::<Value>(token) {
            // serde_json rejects lone surrogates.
            Ok(Value::String(_)) => token.len() <= self.limits.max_string_bytes,
            Ok(Value::Number(number)) => number.to_string() == token && is_exact(token.as_bytes()),
            Ok(_) => true,
            Err(_) => false,
        }
    }

    fn value(&mut self, depth: usize) -> String {
        self.skip_white();
        let (start, holes) = (self.pos, self.holes.len());
        let closing = match self.data[start] {
            b'{' => b'}',
            b'[' => b']',
            _ => {
                let token = self.token();
                return if self.fits_skeleton(&token) { token } else { self.hole(start) };
            }
        };
        let mut parts = Vec::new();
        let mut is_hole = depth >= self.limits.max_depth;
        self.pos += 1;
        self.skip_white();
        if self.data[self.pos] == closing {
            self.pos += 1;
        } else {
            loop {
                let mut part = String::new();
                self.skip_white();
                if closing == b'}' {
                    let key = self.token();
                    is_hole |= !self.fits_skeleton(&key);
                    self.next();
                    part = key + ":";
                }
                part += &self.value(depth + 1);
                parts.push(part);
                if self.next() == closing {
                    break;
                }
            }
        }
        let opening = char::from(self.data[start]);
        let skeleton = format!("{opening}{}{}", parts.join(","), char::from(closing));
        if is_hole || skeleton.len() > self.limits.max_container_bytes {
            self.holes.truncate(holes);
            return self.hole(start);
        }
        skeleton
    }
}

fn naive(message: &[u8], limits: Limits) -> Dissection {
    let mut naive = Naive { data: message, pos: 0, limits, holes: Vec::new() };
    let skeleton = naive.value(0).into_bytes();
    Dissection { skeleton, holes: naive.holes }
}

fn small_limits() -> impl Strategy<Value = Limits> {
    (2..40_usize, 2..200_usize, 0..5_usize).prop_map(|(max_string_bytes, max_container_bytes, max_depth)| {
        Limits { max_string_bytes, max_container_bytes, max_depth }
    })
}

fn encode(value: &Value, is_pretty: bool) -> Vec<u8> {
    if is_pretty { serde_json::to_vec_pretty(value).unwrap() } else { serde_json::to_vec(value).unwrap() }
}

proptest! {
    #[test]
    fn matches_a_recursive_reader(value in testing::json(), is_pretty: bool, limits in small_limits(), piece in 1..40_usize) {
        let message = encode(&value, is_pretty);
        let expected = naive(&message, limits);
        prop_assert_eq!(split(&message, limits).unwrap(), expected.clone());
        let chunked = std::io::BufReader::with_capacity(piece, message.as_slice());
        prop_assert_eq!(dissect(chunked, TOKEN, limits).unwrap(), expected);
    }

    #[test]
    fn filling_the_holes_restores_the_message(value in testing::json(), limits in small_limits()) {
        let message = encode(&value, false);
        let Dissection { skeleton, holes } = split(&message, limits).unwrap();
        let mut whole = String::from_utf8(skeleton).unwrap();
        for (n, hole) in holes.iter().enumerate().rev() {
            let bytes = &message[hole.start as usize..hole.end as usize];
            whole = whole.replacen(&format!("\"{TOKEN}:{n}\""), str::from_utf8(bytes).unwrap(), 1);
        }
        prop_assert_eq!(whole.into_bytes(), message);
    }

    #[test]
    fn a_lone_surrogate_is_a_hole(
        pieces in prop::collection::vec(prop::sample::select(vec![r"\ud83d", r"\uDE00", r"\\", r"\n", r"\u00e9", "ud83d"]), 0..7),
    ) {
        let message = format!("\"{}\"", pieces.concat());
        let is_text = serde_json::from_str::<String>(&message).is_ok();
        prop_assert_eq!(split(message.as_bytes(), Limits::default()).unwrap().holes.is_empty(), is_text);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        message in prop::collection::vec(prop_oneof![Just(b'['), Just(b'{'), Just(b'"'), Just(b'}'), Just(b']'), Just(b','), Just(b':'), any::<u8>()], 0..60),
        limits in small_limits(),
        piece in 1..9_usize,
    ) {
        let whole = split(&message, limits);
        prop_assert_eq!(&dissect(std::io::BufReader::with_capacity(piece, message.as_slice()), TOKEN, limits), &whole);
        match whole {
            Ok(dissection) => {
                prop_assert!(serde_json::from_slice::<Value>(&dissection.skeleton).is_ok(), "{:?}", dissection);
                // The root may be a single string or hole.
                prop_assert!(dissection.skeleton.len() <= limits.max_container_bytes.max(limits.max_string_bytes).max(TOKEN.len() + 25));
            }
            Err(error) => {
                prop_assert!(error.index <= message.len() as u64);
                prop_assert!(serde_json::from_slice::<Value>(&message).is_err());
            }
        }
    }
}

#[test]
fn truncated_messages_and_trailing_bytes_are_errors() {
    let message = br#"{"id":1,"result":{"content":[{"type":"text","text":"a\"b"}],"n":[1.5e3]}}"#;
    for limits in [Limits::default(), Limits { max_string_bytes: 8, max_container_bytes: 60, max_depth: 2 }] {
        assert!(split(message, limits).is_ok());
        for end in 0..message.len() {
            let error = split(&message[..end], limits).unwrap_err();
            let is_within_word = matches!(message[end - usize::from(end > 0)], b'.' | b'e');
            assert!(error.index == end as u64 || is_within_word, "cut at {end}: {error:?}");
        }
        for more in ["}", "{}", ",", "1", "\"\""] {
            let message = [message, more.as_bytes()].concat();
            assert_eq!(split(&message, limits).unwrap_err().index, (message.len() - more.len()) as u64);
        }
    }
}

#[test]
fn values_that_python_cannot_read_exactly_are_holes() {
    let strings = [
        r#""\ud800""#,
        r#""\ude00\ud83d""#,
        r#""\ud83d\ud83d\ude00""#,
        r#""\ud83d\ude00\ude00""#,
        r#""\ud83d\\ude00""#,
        r#""\ud83d\n\ude00""#,
        r#""\uDFFF""#,
        r#""\x""#,
        r#""\u12""#,
        "\"\n\"",
    ];
    let numbers = [
        "1e3",
        "-0",
        "1.10",
        "0.00001",
        "0.1234567890123456",
        "18446744073709551616",
        "-9223372036854775809",
    ];
    let bytes: &[u8] = b"\"\xff\"";
    for inexact in strings.iter().chain(&numbers).map(|text| text.as_bytes()).chain([bytes]) {
        let message = [b"[", inexact, b"]"].concat();
        let dissection = split(&message, Limits::default()).unwrap();
        assert_eq!(
            dissection.holes,
            vec![1..1 + inexact.len() as u64],
            "{}",
            String::from_utf8_lossy(inexact)
        );
    }
    for plain in [
        r#""\\ud83d \u00e9""#,
        r#""\ud83d\ude00\uD83D\uDE00 \\\ud83d\ude00""#,
        r#"{"\ud83d\ude00":1}"#,
        "18446744073709551615",
        "-9223372036854775808",
        "1.5",
        "-0.0",
        "123456789012.345",
    ] {
        assert_eq!(split(plain.as_bytes(), Limits::default()).unwrap().skeleton, plain.as_bytes());
    }
    let key = split(br#"{"a":{"\ud800":[1]}}"#, Limits::default()).unwrap();
    assert_eq!(key.holes, vec![5..19], "an object with such a key is a hole");
}

#[test]
fn depth_takes_no_memory() {
    let brackets = vec![b'['; 4 << 20];
    assert_eq!(split(&brackets, Limits::default()).unwrap_err().index, 4 << 20);
    let closed = [brackets, vec![b']'; 4 << 20]].concat();
    assert_eq!(split(&closed, Limits::default()).unwrap().holes, vec![64..(8 << 20) - 64]);
}
