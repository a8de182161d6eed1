use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::testing;

const TOKEN: &str = "0123abcd";

fn taken(message: &[u8], limits: Limits) -> Result<Dissected> {
    dissect(message, TOKEN, limits)
}

/// Whole JSON, read by recursion: what it is in the skeleton, appended with its holes.
struct Naive<'a> {
    data: &'a [u8],
    pos: usize,
    limits: Limits,
    holes: Vec<Range<u64>>,
}

impl Naive<'_> {
    fn white(&mut self) {
        while self.data.get(self.pos).is_some_and(u8::is_ascii_whitespace) {
            self.pos += 1;
        }
    }

    fn next(&mut self) -> u8 {
        self.white();
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

    fn is_shown(&self, token: &str) -> bool {
        match serde_json::from_str::<Value>(token) {
            // Half of a surrogate pair is no text for it.
            Ok(Value::String(_)) => token.len() <= self.limits.most_string,
            Ok(Value::Number(number)) => number.to_string() == token && is_exact(token.as_bytes()),
            Ok(_) => true,
            Err(_) => false,
        }
    }

    fn value(&mut self, depth: usize) -> String {
        self.white();
        let (start, holes) = (self.pos, self.holes.len());
        let closing = match self.data[start] {
            b'{' => b'}',
            b'[' => b']',
            _ => {
                let token = self.token();
                return if self.is_shown(&token) { token } else { self.hole(start) };
            }
        };
        let mut parts = Vec::new();
        let mut is_bad = depth >= self.limits.most_depth;
        self.pos += 1;
        self.white();
        if self.data[self.pos] == closing {
            self.pos += 1;
        } else {
            loop {
                let mut part = String::new();
                self.white();
                if closing == b'}' {
                    let key = self.token();
                    is_bad |= !self.is_shown(&key);
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
        let shown = format!("{opening}{}{}", parts.join(","), char::from(closing));
        if is_bad || shown.len() > self.limits.most_container {
            self.holes.truncate(holes);
            return self.hole(start);
        }
        shown
    }
}

fn naive(message: &[u8], limits: Limits) -> Dissected {
    let mut naive = Naive { data: message, pos: 0, limits, holes: Vec::new() };
    let skeleton = naive.value(0).into_bytes();
    Dissected { skeleton, holes: naive.holes }
}

fn small() -> impl Strategy<Value = Limits> {
    (2..40_usize, 2..200_usize, 0..5_usize).prop_map(|(most_string, most_container, most_depth)| Limits {
        most_string,
        most_container,
        most_depth,
    })
}

fn spaced(value: &Value, is_pretty: bool) -> Vec<u8> {
    if is_pretty { serde_json::to_vec_pretty(value).unwrap() } else { serde_json::to_vec(value).unwrap() }
}

proptest! {
    #[test]
    fn is_what_a_recursion_makes_of_it(value in testing::json(), is_pretty: bool, limits in small(), piece in 1..40_usize) {
        let message = spaced(&value, is_pretty);
        let expected = naive(&message, limits);
        prop_assert_eq!(taken(&message, limits).unwrap(), expected.clone());
        let cut = std::io::BufReader::with_capacity(piece, message.as_slice());
        prop_assert_eq!(dissect(cut, TOKEN, limits).unwrap(), expected);
    }

    #[test]
    fn the_holes_put_back_make_the_message(value in testing::json(), limits in small()) {
        let message = spaced(&value, false);
        let Dissected { skeleton, holes } = taken(&message, limits).unwrap();
        let mut whole = String::from_utf8(skeleton).unwrap();
        for (n, hole) in holes.iter().enumerate().rev() {
            let bytes = &message[hole.start as usize..hole.end as usize];
            whole = whole.replacen(&format!("\"{TOKEN}:{n}\""), str::from_utf8(bytes).unwrap(), 1);
        }
        prop_assert_eq!(whole.into_bytes(), message);
    }

    #[test]
    fn half_of_a_pair_is_no_text(
        pieces in prop::collection::vec(prop::sample::select(vec![r"\ud83d", r"\uDE00", r"\\", r"\n", r"\u00e9", "ud83d"]), 0..7),
    ) {
        let message = format!("\"{}\"", pieces.concat());
        let is_text = serde_json::from_str::<String>(&message).is_ok();
        prop_assert_eq!(taken(message.as_bytes(), Limits::default()).unwrap().holes.is_empty(), is_text);
    }

    #[test]
    fn any_bytes_do_no_harm(
        message in prop::collection::vec(prop_oneof![Just(b'['), Just(b'{'), Just(b'"'), Just(b'}'), Just(b']'), Just(b','), Just(b':'), any::<u8>()], 0..60),
        limits in small(),
        piece in 1..9_usize,
    ) {
        let whole = taken(&message, limits);
        prop_assert_eq!(&dissect(std::io::BufReader::with_capacity(piece, message.as_slice()), TOKEN, limits), &whole);
        match whole {
            Ok(dissected) => {
                prop_assert!(serde_json::from_slice::<Value>(&dissected.skeleton).is_ok(), "{:?}", dissected);
                // The root may still be one value that is written whole.
                prop_assert!(dissected.skeleton.len() <= limits.most_container.max(limits.most_string).max(TOKEN.len() + 25));
            }
            Err(error) => {
                prop_assert!(error.index <= message.len() as u64);
                prop_assert!(serde_json::from_slice::<Value>(&message).is_err());
            }
        }
    }
}

#[test]
fn a_message_that_is_cut_off_or_goes_on_is_none() {
    let message = br#"{"id":1,"result":{"content":[{"type":"text","text":"a\"b"}],"n":[1.5e3]}}"#;
    for limits in [Limits::default(), Limits { most_string: 8, most_container: 60, most_depth: 2 }] {
        assert!(taken(message, limits).is_ok());
        for end in 0..message.len() {
            let error = taken(&message[..end], limits).unwrap_err();
            let is_within_word = matches!(message[end - usize::from(end > 0)], b'.' | b'e');
            assert!(error.index == end as u64 || is_within_word, "cut at {end}: {error:?}");
        }
        for more in ["}", "{}", ",", "1", "\"\""] {
            let message = [message, more.as_bytes()].concat();
            assert_eq!(taken(&message, limits).unwrap_err().index, (message.len() - more.len()) as u64);
        }
    }
}

#[test]
fn what_python_would_not_read_exactly_is_a_hole() {
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
    for delicate in strings.iter().chain(&numbers).map(|text| text.as_bytes()).chain([bytes]) {
        let message = [b"[", delicate, b"]"].concat();
        let found = taken(&message, Limits::default()).unwrap();
        assert_eq!(found.holes, vec![1..1 + delicate.len() as u64], "{}", String::from_utf8_lossy(delicate));
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
        assert_eq!(taken(plain.as_bytes(), Limits::default()).unwrap().skeleton, plain.as_bytes());
    }
    let key = taken(br#"{"a":{"\ud800":[1]}}"#, Limits::default()).unwrap();
    assert_eq!(key.holes, vec![5..19], "an object with such a key is one");
}

#[test]
fn depth_takes_no_memory() {
    let brackets = vec![b'['; 4 << 20];
    assert_eq!(taken(&brackets, Limits::default()).unwrap_err().index, 4 << 20);
    let closed = [brackets, vec![b']'; 4 << 20]].concat();
    assert_eq!(taken(&closed, Limits::default()).unwrap().holes, vec![64..(8 << 20) - 64]);
}
