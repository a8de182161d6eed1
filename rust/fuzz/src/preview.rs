//! Previews: their sizes are compared with the escaping of serde_json.

use forebay_core::{Escaping, index_items, preview, preview_items, preview_lines};

use serde_json::Value;

use crate::Input;

pub fn compare(input: Input<'_>) {
    let Input { knobs, data } = input;
    let max_bytes = input.budget();
    let max_escaped = (knobs[2] % 2 == 1).then(|| data.len() as u64 * u64::from(knobs[3]) / 64);
    let twice = knobs[2] & 2 != 0;
    let escaping = if twice { Escaping::Twice } else { Escaping::Once };
    compare_items(data, max_bytes, max_escaped, twice);
    let Some(end) = preview(data, max_bytes, max_escaped, escaping).expect("the arguments are right") else {
        check_binary(data, max_bytes, max_escaped);
        return;
    };
    let lines = preview_lines(data, max_bytes, max_escaped, escaping, (knobs[2] & 4 != 0).then_some(b','));
    let lines = lines.expect("the arguments are right").expect("text");
    assert!(lines <= end && (2 * lines >= end || end == 0), "{lines} of {end}");
    let text = std::str::from_utf8(&data[..end]).expect("whole characters");
    assert!(end as u64 <= max_bytes);
    assert!(!text.contains('\0'));
    assert!(!is_inside_an_escape(text, &data[end..]), "half an escape: {text:?}");
    let size = escaped_len(text, twice);
    assert!(max_escaped.is_none_or(|max| size <= max), "{size} escaped bytes within {max_escaped:?}");
    if max_bytes >= data.len() as u64 && max_escaped.is_none() {
        assert_eq!(end, data.len(), "what fits is its own preview");
    }
}

/// Compares the items in a preview with those that serde_json reads.
fn compare_items(data: &[u8], max_bytes: u64, max_escaped: Option<u64>, twice: bool) {
    let Ok(index) = index_items(data, Some(""), true) else { return };
    let Ok(Value::Array(items)) = serde_json::from_slice::<Value>(data) else { return };
    let escaping = if twice { Escaping::Twice } else { Escaping::Once };
    let (shown, count) =
        preview_items(data, Some(index.start()), max_bytes, max_escaped, escaping).expect("valid JSON");
    assert!(shown.len() as u64 <= max_bytes);
    assert!(max_escaped.is_none_or(|max| escaped_len(&shown, twice) <= max));
    if !shown.is_empty() {
        let found: Vec<Value> = serde_json::from_str(&shown).expect("an array");
        assert!(found.len() == 1 || items.starts_with(&found), "{shown}");
        assert!(count == found.len() as u64 || (count, found.len()) == (0, 1), "{count} of {shown}");
    }
}

fn escaped_len(text: &str, twice: bool) -> u64 {
    let quote = |text: &str| {
        let quoted = serde_json::to_string(text).expect("a string");
        quoted[1..quoted.len() - 1].to_owned()
    };
    let once = quote(text);
    if twice { quote(&once).len() as u64 } else { once.len() as u64 }
}

/// Whether the cut is after an odd number of backslashes, or among the hexadecimal digits after the `u` of an
/// escape.
fn is_inside_an_escape(before: &str, after: &[u8]) -> bool {
    let is_escape = |text: &str| (text.len() - text.trim_end_matches('\\').len()) % 2 == 1;
    let without_digits = before.trim_end_matches(|c: char| c.is_ascii_hexdigit());
    let missing = 4_usize.saturating_sub(before.len() - without_digits.len());
    let is_completed = after.len() >= missing && after[..missing].iter().all(u8::is_ascii_hexdigit);
    let is_unicode = without_digits.strip_suffix('u').is_some_and(is_escape);
    !after.is_empty() && (is_escape(before) || (is_unicode && missing > 0 && is_completed))
}

/// Checks that the bytes within the budget are not text: there is a NUL, or a sequence that is wrong and not
/// only cut.
fn check_binary(data: &[u8], max_bytes: u64, max_escaped: Option<u64>) {
    let limit = max_escaped.map_or(max_bytes, |max| max.min(max_bytes)) as usize;
    let prefix = &data[..limit.min(data.len())];
    let is_wrong = match std::str::from_utf8(prefix) {
        Ok(_) => false,
        Err(error) => error.error_len().is_some() || prefix.len() == data.len(),
    };
    let cut_character = data[prefix.len()..].first().is_some_and(|&byte| byte & 0xC0 == 0x80);
    assert!(is_wrong || prefix.contains(&0) || cut_character, "text was called binary");
}
