//! Searching and counting: compared with a loop for literals, with the `regex` crate for expressions, and with the
//! values that serde_json parses for the values of JSON.

use std::ops::Range;
use std::sync::LazyLock;

use forebay_core::pointer::{Pointer, locate};
use forebay_core::search::{LiteralCounter, Options, Pattern, count, search};
use regex::bytes::{Regex, RegexBuilder};
use serde_json::Value;

use crate::{Input, oracle};

/// An expression as forebay reads it, and its equivalent for the `regex` crate, whose `\b`, `\w` and `\d` are
/// Unicode.
const EXPRESSIONS: [(&str, &str); 8] = [
    (r"\bfailed\b.{0,40}timeout", r"(?-u:\b)failed(?-u:\b).{0,40}timeout"),
    (r"user_id=\d{2,}", r"user_id=(?-u:\d){2,}"),
    (r"(?i)error|warn", r"(?i)error|warn"),
    (r"[a-z]+ing\b", r"[a-z]+ing(?-u:\b)"),
    (r#""[^"]*id[^"]*""#, r#""[^"]*id[^"]*""#),
    (r"^.{0,10}name", r"^.{0,10}name"),
    (r"\w+:\s*$", r"(?-u:\w)+:(?-u:\s)*$"),
    (r"[^\x00-\x7f]+", r"[^\x00-\x7f]+"),
];

static COMPILED: LazyLock<[(Pattern, Regex); 8]> = LazyLock::new(|| {
    EXPRESSIONS.map(|(expression, equivalent)| {
        let reference = RegexBuilder::new(equivalent).multi_line(true).build();
        (Pattern::regex(expression, false).expect("an expression"), reference.expect("an expression"))
    })
});

pub fn compare(Input { knobs, data }: Input<'_>) {
    let (needle, rest) = data.split_at(data.len().min(usize::from(knobs[0] % 8)));
    if let Ok(needle) = std::str::from_utf8(needle)
        && !needle.is_empty()
    {
        let pattern = Pattern::literal(needle, false).expect("a literal");
        let expected = find(rest, needle.as_bytes());
        check(rest, &pattern, &expected, knobs);
        let mut counter = LiteralCounter::new(&pattern).expect("a literal");
        rest.chunks(usize::from(knobs[3]) + 1).for_each(|piece| counter.feed(piece));
        assert_eq!(counter.matches(), expected.len() as u64);
        check_values(rest, needle);
    }
    let (pattern, reference) = &COMPILED[usize::from(knobs[1]) % COMPILED.len()];
    let expected: Vec<_> = reference.find_iter(data).map(|found| found.range()).collect();
    check(data, pattern, &expected, knobs);
}

fn find(data: &[u8], needle: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + needle.len() <= data.len() {
        if &data[at..at + needle.len()] == needle {
            found.push(at..at + needle.len());
            at += needle.len();
        } else {
            at += 1;
        }
    }
    found
}

/// Checks the number of matches in the values of JSON, and that each has the path of a value.
fn check_values(data: &[u8], needle: &str) {
    let pattern = Pattern::in_values(needle, false, false).expect("a literal");
    let counted = count(data, &pattern, None, None);
    let expression = Pattern::in_values(&regex::escape(needle), true, false).expect("an expression");
    // serde_json writes numbers in another way.
    let is_numeric = needle.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    if let Some(value) = oracle::parse(data) {
        if !is_numeric {
            assert_eq!(counted.matches, count_in(&value, needle));
        }
        assert_eq!(count(data, &expression, None, None).matches, counted.matches);
        let options = Options { offset: 0, limit: usize::MAX, context: 0, paths: true };
        let page = search(data, &pattern, options, None).expect("the arguments are right");
        assert_eq!(page.matches.len() as u64, counted.matches);
        for found in page.matches {
            // A very long path is left out.
            if let Some(path) = found.path {
                locate(data, &Pointer::parse(&path).expect("a pointer")).expect("a value");
            }
        }
    }
}

fn count_in(value: &Value, needle: &str) -> u64 {
    match value {
        Value::String(text) => text.matches(needle).count() as u64,
        Value::Array(items) => items.iter().map(|item| count_in(item, needle)).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(key, member)| key.matches(needle).count() as u64 + count_in(member, needle))
            .sum(),
        Value::Number(_) => 0,
        Value::Null | Value::Bool(_) => value.to_string().matches(needle).count() as u64,
    }
}

/// Checks the matches of one search, and of a search page by page.
fn check(data: &[u8], pattern: &Pattern, expected: &[Range<usize>], knobs: [u8; 4]) {
    assert_eq!(count(data, pattern, None, None).matches, expected.len() as u64);
    for limit in [usize::MAX, usize::from(knobs[2] % 4) + 1] {
        let mut found = Vec::new();
        let mut next = Some(0);
        while let Some(offset) = next {
            let options = Options { offset, limit, context: usize::from(knobs[3]), paths: true };
            let page = search(data, pattern, options, None).expect("the arguments are right");
            for at in &page.matches {
                let lines = data[..at.start].iter().filter(|&&byte| byte == b'\n').count();
                assert_eq!(at.line, Some(lines as u64));
                if let Some(context) = &at.context {
                    assert_eq!(context.as_bytes(), &data[at.context_start..at.context_start + context.len()]);
                }
            }
            found.extend(page.matches.iter().map(|at| at.start..at.end));
            next = page.next_offset;
        }
        assert_eq!(found, expected, "limit {limit}");
    }
}
