//! Dissecting messages: compared with serde_json and with itself in pieces.

use forebay_core::message::{
    Limits, Source, Unescaper, Value, dissect, text_matches, unescape, unescape_into, unescaped_len,
};

use crate::{Input, oracle};

const TOKEN: &str = "5ca1ab1e";

pub fn compare(Input { knobs, data }: Input<'_>) {
    let limits = Limits {
        max_string_bytes: 2 + usize::from(knobs[0] % 64),
        max_container_bytes: 2 + usize::from(knobs[1]),
        max_depth: usize::from(knobs[2] % 8),
    };
    check_dissect(data, limits, usize::from(knobs[3]) + 1);
    check_unescape(data, usize::from(knobs[3]) + 1);
    check_text_matches(data);
}

fn check_dissect(data: &[u8], limits: Limits, step: usize) {
    let dissection = dissect(data, TOKEN, limits);
    let chunked = std::io::BufReader::with_capacity(step, data);
    assert_eq!(dissect(chunked, TOKEN, limits), dissection, "in pieces of {step}");
    let Ok(dissection) = dissection else {
        assert!(!oracle::is_json(data), "{dissection:?} for valid JSON");
        return;
    };
    assert!(oracle::is_json(&dissection.skeleton));
    if !oracle::is_json(data) {
        return;
    }
    let mut whole = dissection.skeleton;
    for (number, hole) in dissection.holes.iter().enumerate().rev() {
        let placeholder = format!("\"{TOKEN}:{number}\"").into_bytes();
        let at = whole.windows(placeholder.len()).rposition(|part| part == placeholder).expect("a hole");
        let bytes = &data[hole.start as usize..hole.end as usize];
        assert!(oracle::is_json(bytes), "a hole is a value");
        whole.splice(at..at + placeholder.len(), bytes.iter().copied());
    }
    assert_eq!(oracle::parse(&whole), oracle::parse(data));
}

fn check_unescape(data: &[u8], step: usize) {
    let whole = unescape(data);
    let (mut unescaper, mut pieces) = (Unescaper::default(), Vec::new());
    data.chunks(step).for_each(|piece| unescaper.push(piece, &mut pieces));
    unescaper.finish(&mut pieces);
    assert_eq!(pieces, whole, "in pieces of {step}");
    let mut exact = vec![0; unescaped_len(data).unwrap_or(whole.len())];
    assert!(unescape_into(data, &mut exact));
    assert_eq!(exact, whole);
    let token = [b"\"", data, b"\""].concat();
    if let Ok(text) = serde_json::from_slice::<String>(&token) {
        assert_eq!(whole, text.into_bytes());
    }
}

/// Checks that a document matches its own text.
fn check_text_matches(data: &[u8]) {
    let (true, Ok(text)) = (oracle::is_json(data), std::str::from_utf8(data)) else { return };
    let token = serde_json::to_vec(text).expect("a text");
    let (text, value) = (Source::Memory(&token), Source::Memory(data));
    let text = Value { source: &text, span: 0..token.len() as u64 };
    let value = Value { source: &value, span: 0..data.len() as u64 };
    assert_eq!(text_matches(&text, &value), Ok(true));
}
