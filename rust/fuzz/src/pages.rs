//! Pages of text and lines: they leave no gap, keep to their budget, and are whole.

use forebay_core::{Escaping, ItemIndex, Range, index_lines, read_lines, read_text};

use crate::Input;

pub fn compare(input: Input<'_>) {
    let Ok(text) = std::str::from_utf8(input.data) else { return };
    let escaping = Escaping::from_levels(u64::from(input.knobs[2] % 3)).expect("0, 1 or 2");
    let max_bytes = escaping.max_char_len() as u64 + input.budget();
    check_text(text, max_bytes, escaping);
    let index = index_lines(input.data);
    for index in [None, Some(&index)] {
        check_lines(text, index, 1 + u64::from(input.knobs[3]), max_bytes, escaping);
    }
}

fn check_text(text: &str, max_bytes: u64, escaping: Escaping) {
    let mut all = String::new();
    let mut next = Some(0);
    while let Some(offset) = next {
        let page = read_text(text.as_bytes(), Range::From(offset), max_bytes, escaping).expect("text");
        let shown = &text[page.span.clone()];
        assert!(escaping.escaped_len(shown.as_bytes()) as u64 <= max_bytes);
        assert!(!shown.is_empty() || text.is_empty(), "a page without progress");
        all.push_str(shown);
        next = page.next_offset;
    }
    assert_eq!(all, text);
}

fn check_lines(text: &str, index: Option<&ItemIndex>, limit: u64, max_bytes: u64, escaping: Escaping) {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut next = Some(0);
    let mut at = 0;
    while let Some(offset) = next {
        assert_eq!(offset, at as u64);
        let range = Range::Bounded { offset, limit };
        let page = read_lines(text.as_bytes(), index, range, max_bytes, escaping).expect("text");
        let shown = &text[page.span.clone()];
        assert!(escaping.escaped_len(shown.as_bytes()) as u64 <= max_bytes);
        let expected = &lines[at..at + page.returned as usize];
        match page.truncated {
            Some(cut) => {
                assert!(expected[0].starts_with(shown) && expected.len() == 1);
                assert_eq!(cut.size_bytes, expected[0].len() as u64);
            }
            None => assert_eq!(shown, expected.concat()),
        }
        at += expected.len();
        next = page.next_offset;
    }
    assert_eq!(at, lines.len());
}
