use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::ErrorKind;

const ALL: Options = Options { offset: 0, limit: usize::MAX, context: 0, paths: false };

fn regex(pattern: &str) -> Pattern {
    Pattern::regex(pattern, false).unwrap()
}

fn spans(data: &[u8], pattern: &Pattern) -> Vec<Range<usize>> {
    pattern.matches(data, 0).collect()
}

fn texts<'a>(data: &'a str, pattern: &Pattern) -> Vec<&'a str> {
    spans(data.as_bytes(), pattern).into_iter().map(|span| &data[span]).collect()
}

fn error_kind(result: Result<impl std::fmt::Debug>) -> ErrorKind {
    result.unwrap_err().kind
}

/// Expressions over the words of `haystack`.
fn expression() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        6 => prop::sample::select(vec!["ab", "abab", "fail", "time", "é", "漢字", "a", "b", "\"", " "]),
        4 => prop::sample::select(vec![r"\w", r"\d", r"\s", r"\W", ".", "[ab]", "[^\"]", "[^ab]", r"[^\s]"]),
        2 => prop::sample::select(vec![r"\b", r"\B", "^", "$", r"\A", r"\z"]),
        1 => prop::sample::select(vec![".{0,3}", ".{2,5}", "[^\"]*", r"\w+", "(?s:.)", r"\n"]),
    ]
    .prop_map(str::to_owned);
    atom.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            4 => prop::collection::vec(inner.clone(), 1..5).prop_map(|parts| parts.concat()),
            1 => prop::collection::vec(inner.clone(), 1..4).prop_map(|branches| format!("(?:{})", branches.join("|"))),
            1 => (inner.clone(), prop::sample::select(vec!["+", "*", "?", "{1,2}", "{2,}", "+?", "*?", "??"]))
                .prop_map(|(inner, times)| format!("(?:{inner}){times}")),
            1 => inner.clone().prop_map(|inner| format!("({inner})")),
            1 => inner.prop_map(|inner| format!("(?i:{inner})")),
        ]
    })
    .prop_filter("repeats what can be empty", |pattern| Pattern::regex(pattern, false).is_ok())
}

#[test]
fn repeated_empty_parts_are_rejected() {
    for pattern in ["(?:a*)*", r"(?:\s*(?:\w+=)?)*", "(?:x?|ab)*", r"(?:\b|ab)+"] {
        let error = error_kind(Pattern::regex(pattern, false));
        assert!(
            matches!(error, ErrorKind::InvalidPattern(reason) if reason.contains("at least one")),
            "{pattern}"
        );
    }
}

fn haystack() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        &b"ab"[..],
        b"abab",
        b"AB",
        b"fail",
        b"time",
        b"\"",
        b" ",
        b"\n",
        b"7",
        "é".as_bytes(),
        "漢字".as_bytes(),
        b"\xE6",
    ]);
    prop::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_prefilter_does_not_change_matches(pattern in expression(), data in haystack()) {
        let plain = regex(&pattern).without_prefilter();
        prop_assert_eq!(spans(&data, &regex(&pattern)), spans(&data, &plain), "{}", pattern);
    }

    /// Matches with all the delimiters they may contain, on one side of the literal or on both.
    #[test]
    fn windows_contain_their_matches(
        pattern in prop::sample::select(vec![
            r#"fail[^"]*"[^"]*""#,
            r#""[^"]*"[^"]*fail"#,
            r#""[^"]*fail[^"]*""#,
            r#"\w*"[^"]*fail(?s:[^"]|"x)*"?"#,
            r#"(?:[^ "]* ){2}[^ "]*fail"#,
            r"\w*fail\w*",
            r".*fail.*",
        ]),
        data in haystack(),
    ) {
        let plain = regex(pattern).without_prefilter();
        prop_assert_eq!(spans(&data, &regex(pattern)), spans(&data, &plain), "{}", pattern);
    }

    #[test]
    fn pages_add_up_to_one_search(pattern in expression(), data in haystack(), limit in 1..4_usize) {
        let pattern = regex(&pattern);
        let mut paged = Vec::new();
        let mut start = Some(0);
        while let Some(from) = start {
            let page = search(&data, &pattern, Options { offset: from, limit, ..ALL }, None).unwrap();
            prop_assert!(page.matches.len() == limit || page.next_offset.is_none());
            start = page.next_offset;
            paged.extend(page.matches);
        }
        prop_assert_eq!(paged, search(&data, &pattern, ALL, None).unwrap().matches);
    }

    #[test]
    fn matches_are_whole_characters_of_valid_text(pattern in expression(), data in haystack()) {
        let Ok(text) = str::from_utf8(&data) else { return Ok(()) };
        for span in spans(&data, &regex(&pattern)) {
            prop_assert!(!span.is_empty() && text.get(span).is_some());
        }
    }

    #[test]
    fn literals_are_found_like_substrings(needle in "[ab\"é漢]{1,3}", data in haystack()) {
        let mut naive = Vec::new();
        let mut at = 0;
        while at + needle.len() <= data.len() {
            let end = at + needle.len();
            if &data[at..end] == needle.as_bytes() {
                naive.push(at..end);
            }
            at = if naive.last() == Some(&(at..end)) { end } else { at + 1 };
        }
        prop_assert_eq!(spans(&data, &Pattern::literal(&needle, false).unwrap()), naive);
    }

    #[test]
    fn lines_are_numbered_from_0(pattern in expression(), data in haystack(), start in 0..80_usize) {
        for found in search(&data, &regex(&pattern), Options { offset: start, ..ALL }, None).unwrap().matches {
            let naive = data[..found.start].iter().filter(|&&byte| byte == b'\n').count();
            prop_assert_eq!((found.line, found.item), (Some(naive as u64), None));
        }
    }
}

#[test]
fn an_item_index_gives_item_numbers() {
    let data = b"{\"a\":\n[1, \"a\",\n {\"a\": 2}]}";
    let index = crate::index::index_items(data, None, true).unwrap();
    let page = search(data, &regex("a"), ALL, Some(&index)).unwrap();
    let places: Vec<_> = page.matches.iter().map(|found| (found.line, found.item)).collect();
    assert_eq!(places, [(None, None), (None, Some(1)), (None, Some(2))]);

    let lines = crate::index::index_lines(data);
    let by_index = search(data, &regex("a"), ALL, Some(&lines)).unwrap();
    assert_eq!(by_index, search(data, &regex("a"), ALL, None).unwrap());
    let none = crate::index::index_items(b"1", None, true).unwrap();
    assert_eq!(by_index, search(data, &regex("a"), ALL, Some(&none)).unwrap());
}

#[test]
fn perl_sets_and_word_boundaries_are_ascii() {
    for (pattern, expected) in [
        (r"\w+", &["na", "ve", "x1"][..]),
        (r"\W+", &["ï", " ٣ "]),
        (r"[\W]+", &["ï", " ٣ "]),
        (r"[^\w]+", &["ï", " ٣ "]),
        (r"[\w--a]+", &["n", "ve", "x1"]),
        (r"\d+", &["1"]),
        (r"\D+", &["naïve ٣ x"]),
        (r"\S+", &["naïve", "٣", "x1"]),
        (r"\b\w", &["n", "v", "x"]),
        (r"\b{start}\w+\b{end}", &["na", "ve", "x1"]),
        (r"\p{Nd}+", &["٣", "1"]),
        (r"\w.\w", &["aïv"]),
    ] {
        assert_eq!(texts("naïve ٣ x1", &regex(pattern)), expected, "{pattern}");
    }
}

#[test]
fn case_folds_by_unicode_and_leaves_negated_sets_alone() {
    assert_eq!(texts("ÄRGER ärger arger", &Pattern::literal("Ärger", true).unwrap()), ["ÄRGER", "ärger"]);
    assert_eq!(texts("a.b aXb", &Pattern::literal("A.B", true).unwrap()), ["a.b"]);
    for pattern in [r"\W", r"[\W]", r"[^\w]", r"[\W\S--[[:alpha:]]--\S]"] {
        assert_eq!(texts("sSkK ", &Pattern::regex(pattern, true).unwrap()), [" "], "{pattern}");
    }
}

#[test]
fn anchors_see_the_bytes_before_the_start() {
    let data = b"ab\nab ab\nab";
    assert_eq!(spans(data, &regex("^ab$")), [0..2, 9..11]);
    assert_eq!(spans(data, &regex("^ab")), [0..2, 3..5, 9..11]);
    assert_eq!(spans(data, &regex(r"\Aab|b$")), [0..2, 7..8, 10..11]);
    for start in 1..data.len() {
        let page = search(data, &regex(r"^ab|\bb"), Options { offset: start, ..ALL }, None).unwrap();
        assert_eq!(page.matches.len(), usize::from(start <= 3) + usize::from(start <= 9), "{start}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_searched_too() {
    assert_eq!(spans(b"\xFFab\xC3 ab\xA9", &regex(r"ab\b")), [1..3, 5..7]);
    assert_eq!(spans(b"\xFFa\xFFb", &regex(".")), [1..2, 3..4]);
    assert_eq!(spans(b"a\xFFb\xFF", &regex(r"(?-u:\xFF)")), [1..2, 3..4]);
}

#[test]
fn next_offset_is_none_at_the_end() {
    let page =
        |start, limit| search(b"xaxa", &regex("a"), Options { offset: start, limit, ..ALL }, None).unwrap();
    assert_eq!(page(0, 1).next_offset, Some(2));
    assert_eq!(page(0, 2).next_offset, None);
    assert_eq!(page(2, 1).next_offset, None);
    for start in [4, 5, usize::MAX] {
        assert_eq!(page(start, 1), Page { matches: vec![], next_offset: None });
    }
}

#[test]
fn invalid_arguments_are_rejected() {
    let none = Options { limit: 0, ..ALL };
    assert!(matches!(error_kind(search(b"a", &regex("a"), none, None)), ErrorKind::InvalidArgument(_)));
    for pattern in [Pattern::literal("", false), Pattern::literal("", true), Pattern::regex("", false)] {
        assert!(matches!(error_kind(pattern), ErrorKind::InvalidArgument(_)));
    }
    let nested = format!("{}a{}", "(".repeat(1000), ")".repeat(1000));
    let nested_set = format!("{}a{}", "[".repeat(1000), "]".repeat(1000));
    for pattern in [
        "(",
        "a**{",
        r"(a)\1",
        "(?=a)",
        r"\p{nope}",
        "a{99999999}",
        r"(?:\pL{99}){99}",
        r"\w{4000}",
        &nested,
        &nested_set,
    ] {
        assert!(
            matches!(error_kind(Pattern::regex(pattern, false)), ErrorKind::InvalidPattern(_)),
            "{pattern}"
        );
    }
}
