//! Inputs that are not guided by coverage: documents that are made to be hard, then damaged a little.

/// A generator that gives the same numbers on every machine: xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 32).unwrap_or(0) % end.max(1)
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

const TEXTS: [&str; 18] = [
    "",
    "a",
    "id",
    "name",
    "failed",
    "timeout",
    "user_id=4711",
    "ERROR",
    "é",
    "漢字",
    "😀👩‍👩‍👧",
    "e\u{301}",
    "\\n",
    "\\\"",
    "\\\\",
    "\\u00e9",
    "\\ud83d\\ude00",
    "[{,:}]",
];
const SCALARS: [&str; 12] = [
    "0",
    "-1",
    "3.25",
    "1e9",
    "-0.0e-1",
    "true",
    "false",
    "null",
    "12345678901234567890",
    "9007199254740993",
    "0.12345678901234567890",
    "170141183460469231731687303715884105727",
];
const SPACES: [&str; 6] = ["", "", "", " ", "\n", "\r\n\t "];
const TOKENS: [&str; 26] = [
    "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "\\ud800", "\n", "\r", " ", "\0", "\u{1}", "true",
    "nul", "-", ".", "e+", "01", "...", "/", "~1", "漢", "\u{feff}",
];

/// Generates a payload: a document, a map, NDJSON or a log; sometimes longer than a block of the index.
pub fn payload(random: &mut Random) -> Vec<u8> {
    let mut text = String::new();
    match random.below(9) {
        0 => repeat(random, "\n", log_line, &mut text),
        1 => repeat(random, "\n", |random, out| value(random, 2, false, out), &mut text),
        2 => {
            text.push_str("{\"meta\":1,\"items\":[");
            repeat(random, ",", |random, out| value(random, 2, true, out), &mut text);
            text.push_str("]}");
        }
        3 => {
            text.push('[');
            repeat(random, ",", |random, out| value(random, 2, true, out), &mut text);
            text.push(']');
        }
        4 => {
            let close = if random.below(2) == 0 { "" } else { "}" };
            text.push_str(if close.is_empty() { "{" } else { "{\"meta\":[1],\"items\":{" });
            repeat(random, ",", entry, &mut text);
            text.push('}');
            text.push_str(close);
        }
        _ => value(random, 5, true, &mut text),
    }
    text.into_bytes()
}

/// Changes a few bytes. Some payloads stay as they are.
pub fn mutate(random: &mut Random, data: &mut Vec<u8>) {
    let changes = random.below(6).saturating_sub(2);
    for _ in 0..changes {
        let at = random.below(data.len() + 1);
        let end = (at + random.below(9)).min(data.len());
        match random.below(6) {
            0 => drop(data.drain(at..end)),
            1 => data.truncate(at),
            2 => insert(data, at, random.pick(&TOKENS).as_bytes()),
            3 => {
                let copy = data[at..end].to_vec();
                let to = random.below(data.len() + 1);
                insert(data, to, &copy);
            }
            4 => insert(data, at, &[random.next().to_le_bytes()[0]]),
            _ => {
                if let Some(byte) = data.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
}

fn insert(data: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    data.splice(at..at, bytes.iter().copied());
}

fn repeat(random: &mut Random, separator: &str, item: impl Fn(&mut Random, &mut String), out: &mut String) {
    let max_count = if random.below(50) == 0 { 5000 } else { 20 };
    for number in 0..random.below(max_count) {
        if number > 0 {
            out.push_str(separator);
        }
        item(random, out);
    }
}

/// Generates an entry of a map. Most values are objects with some of a few keys; now and then one is large.
fn entry(random: &mut Random, out: &mut String) {
    space(random, true, out);
    out.push_str(&format!("\"{}{}\":", random.pick(&TEXTS), random.next()));
    match random.below(300) {
        0 => value(random, 3, true, out),
        1 => {
            out.push_str("{\"id\":{\"a\":[");
            out.push_str(&"[1,\"]\"],".repeat(random.below(40_000)));
            out.push_str("1]}}");
        }
        _ => {
            out.push('{');
            for (number, key) in ["id", "name", "a"].into_iter().enumerate() {
                if number == 0 || random.below(2) == 0 {
                    out.push_str(if number == 0 { "" } else { "," });
                    out.push_str(&format!("\"{key}\":"));
                    value(random, 1, true, out);
                }
            }
            out.push('}');
        }
    }
}

fn log_line(random: &mut Random, out: &mut String) {
    for _ in 0..random.below(8) {
        out.push_str(random.pick(&TEXTS));
        out.push(' ');
    }
}

fn space(random: &mut Random, multiline: bool, out: &mut String) {
    let space = random.pick(&SPACES);
    out.push_str(if multiline { space } else { space.trim_matches(['\r', '\n']) });
}

fn string(random: &mut Random, out: &mut String) {
    out.push('"');
    for _ in 0..random.below(4) {
        out.push_str(random.pick(&TEXTS));
    }
    out.push('"');
}

fn value(random: &mut Random, depth: usize, multiline: bool, out: &mut String) {
    space(random, multiline, out);
    match random.below(if depth == 0 { 2 } else { 4 }) {
        0 => out.push_str(random.pick(&SCALARS)),
        1 => string(random, out),
        2 => {
            out.push('[');
            members(random, multiline, out, |random, out| value(random, depth - 1, multiline, out));
            out.push(']');
        }
        _ => {
            out.push('{');
            members(random, multiline, out, |random, out| {
                string(random, out);
                space(random, multiline, out);
                out.push(':');
                value(random, depth - 1, multiline, out);
            });
            out.push('}');
        }
    }
    space(random, multiline, out);
}

fn members(
    random: &mut Random,
    multiline: bool,
    out: &mut String,
    member: impl Fn(&mut Random, &mut String),
) {
    for number in 0..random.below(6) {
        if number > 0 {
            out.push(',');
        }
        space(random, multiline, out);
        member(random, out);
    }
    space(random, multiline, out);
}
