//! Where the raw content of a JSON string may be cut: never inside an escape, an escaped surrogate pair or a
//! character.

/// Returns the size of the longest prefix of whole characters that has at most `max_chars` characters and
/// `max_bytes` bytes. Content that is not valid gives some result within both.
pub(super) fn floor(content: &[u8], max_chars: usize, max_bytes: usize) -> usize {
    if content.len() <= max_chars.min(max_bytes) {
        return content.len();
    }
    let mut end = 0;
    for _ in 0..max_chars {
        let next = end + char_len(&content[end..]);
        if next == end || next > max_bytes {
            break;
        }
        end = next;
    }
    end
}

/// Returns the number of dots, if content is nothing else.
pub(super) fn dots(content: &[u8]) -> Option<usize> {
    if !matches!(content.first(), Some(b'.' | b'\\')) {
        return None;
    }
    let (mut rest, mut count) = (content, 0);
    while !rest.is_empty() {
        rest = match rest {
            [b'.', rest @ ..] => rest,
            [b'\\', b'u', b'0', b'0', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return None,
        };
        count += 1;
    }
    Some(count)
}

fn char_len(content: &[u8]) -> usize {
    let len = match content {
        [] => 0,
        [b'\\', b'u', ..] if is_surrogate_pair(content) => 12,
        [b'\\', b'u', ..] => 6,
        [b'\\', ..] => 2,
        [_, rest @ ..] => 1 + rest.iter().take(3).take_while(|&&byte| byte & 0xC0 == 0x80).count(),
    };
    len.min(content.len())
}

/// Whether content starts with two escapes that are one character.
fn is_surrogate_pair(content: &[u8]) -> bool {
    let half = |at: usize| match content.get(at..at + 6) {
        Some([b'\\', b'u', b'd' | b'D', half, _, _]) => Some(half.to_ascii_lowercase()),
        _ => None,
    };
    matches!((half(0), half(6)), (Some(b'8' | b'9' | b'a' | b'b'), Some(b'c'..=b'f')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns two spellings of the same text: raw UTF-8, and every code unit as an escape.
    fn spellings(text: &str) -> [Vec<u8>; 2] {
        let raw = serde_json::to_string(text).unwrap();
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        [raw.as_bytes()[1..raw.len() - 1].to_vec(), escaped.into_bytes()]
    }

    fn decode(content: &[u8]) -> String {
        serde_json::from_slice(&[b"\"", content, b"\""].concat()).unwrap()
    }

    proptest! {
        #[test]
        fn counts_characters_however_they_are_written(text in crate::testing::text(), max in 0..40_usize) {
            let naive: String = text.chars().take(max).collect();
            for content in spellings(&text) {
                let end = floor(&content, max, usize::MAX);
                prop_assert_eq!(&decode(&content[..end]), &naive);
            }
        }

        #[test]
        fn fills_as_many_bytes_as_whole_characters_can(text in crate::testing::text()) {
            for content in spellings(&text) {
                let ends: Vec<_> = (0..=text.chars().count()).map(|n| floor(&content, n, usize::MAX)).collect();
                for max in 0..=content.len() {
                    let end = floor(&content, usize::MAX, max);
                    prop_assert_eq!(Some(&end), ends.iter().rfind(|&&end| end <= max));
                }
            }
        }

        #[test]
        fn stays_inside_of_any_bytes(content: Vec<u8>, chars in 0..50_usize, bytes in 0..50_usize) {
            prop_assert!(floor(&content, chars, bytes) <= bytes.min(content.len()));
        }
    }

    #[test]
    fn counts_dots_however_they_are_written() {
        assert_eq!(dots(b"..."), Some(3));
        assert_eq!(dots(br".\u002e.\u002E"), Some(4));
        assert_eq!(dots(b"..a"), None);
        assert_eq!(dots(br".\n"), None);
        assert_eq!(dots(b""), None);
    }
}
