//! Taking messages apart, against serde_json and a loop.

use forebay_core::message::{Limits, Source, Unescaper, Value, dissect, says, unescape};

use crate::{Input, twin};

const TOKEN: &str = "5ca1ab1e";

pub fn compare(Input { knobs, data }: Input<'_>) {
    let limits = Limits {
        most_string: 2 + usize::from(knobs[0] % 64),
        most_container: 2 + usize::from(knobs[1]),
        most_depth: usize::from(knobs[2] % 8),
    };
    check_dissected(data, limits, usize::from(knobs[3]) + 1);
    check_unescaped(data, usize::from(knobs[3]) + 1);
    check_says(data);
}

fn check_dissected(data: &[u8], limits: Limits, step: usize) {
    let found = dissect(data, TOKEN, limits);
    let cut = std::io::BufReader::with_capacity(step, data);
    assert_eq!(dissect(cut, TOKEN, limits), found, "in pieces of {step}");
    let Ok(found) = found else {
        assert!(!twin::is_json(data), "{found:?} for valid JSON");
        return;
    };
    assert!(twin::is_json(&found.skeleton));
    if !twin::is_json(data) {
        return;
    }
    let mut whole = found.skeleton;
    for (number, hole) in found.holes.iter().enumerate().rev() {
        let placeholder = format!("\"{TOKEN}:{number}\"").into_bytes();
        let at = whole.windows(placeholder.len()).rposition(|part| part == placeholder).expect("a hole");
        let bytes = &data[hole.start as usize..hole.end as usize];
        assert!(twin::is_json(bytes), "a hole is a value");
        whole.splice(at..at + placeholder.len(), bytes.iter().copied());
    }
    assert_eq!(twin::parse(&whole), twin::parse(data));
}

fn check_unescaped(data: &[u8], step: usize) {
    let whole = unescape(data);
    let (mut unescaper, mut pieces) = (Unescaper::default(), Vec::new());
    data.chunks(step).for_each(|piece| unescaper.push(piece, &mut pieces));
    unescaper.finish(&mut pieces);
    assert_eq!(pieces, whole, "in pieces of {step}");
    let token = [b"\"", data, b"\""].concat();
    if let Ok(text) = serde_json::from_slice::<String>(&token) {
        assert_eq!(whole, text.into_bytes());
    }
}

/// The document as a text says the document.
fn check_says(data: &[u8]) {
    let (true, Ok(text)) = (twin::is_json(data), std::str::from_utf8(data)) else { return };
    let token = serde_json::to_vec(text).expect("a text");
    let (said, meant) = (Source::Memory(&token), Source::Memory(data));
    let said = Value { source: &said, span: 0..token.len() as u64 };
    let meant = Value { source: &meant, span: 0..data.len() as u64 };
    assert_eq!(says(&said, &meant), Ok(true));
}
