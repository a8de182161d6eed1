use proptest::prelude::*;

use super::*;

/// Reference: decodes a character at a time, surrogates as WTF-8.
fn naive(content: &[u8]) -> Vec<u8> {
    let unit = |at: usize| -> Option<u32> {
        let digits = content.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
        u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut out, mut at) = (Vec::new(), 0);
    while at < content.len() {
        let letter =
            content.get(at + 1).and_then(|letter| b"\"\\/bfnrt".iter().position(|known| known == letter));
        match (content[at], letter, unit(at)) {
            (b'\\', Some(letter), _) => {
                out.push(b"\"\\/\x08\x0c\n\r\t"[letter]);
                at += 2;
            }
            (b'\\', _, Some(first)) => {
                let pair = unit(at + 6).filter(|second| first >> 10 == 0x36 && second >> 10 == 0x37);
                let character = pair
                    .map(|second| char::decode_utf16([first as u16, second as u16]).next().unwrap().unwrap());
                at += if pair.is_some() { 12 } else { 6 };
                match character.or(char::from_u32(first)) {
                    Some(character) => out.extend(character.to_string().bytes()),
                    None => out.extend([0xed, 0x80 | (first >> 6 & 0x3f) as u8, 0x80 | (first & 0x3f) as u8]),
                }
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        crate::utf8::tests::escaped_text().prop_map(String::into_bytes),
        "[a-z]{0,70}".prop_map(String::into_bytes),
        r#"(\\["\\/bfnrt]){1,9}"#.prop_map(String::into_bytes),
        // Many usual escapes in each block.
        r#"([a-zé]{0,6}\\["\\/nrt]){10,60}"#.prop_map(String::into_bytes),
        // Many long ones, with halves of surrogate pairs, and now and then a letter of no escape.
        r#"(a{0,3}(\\u(00|0[0-7]|d[89cdCD]|D[8Bf]|[0-9a-fA-F]{2})[0-9a-fA-F]{2}|\\ud83d\\ude[0-4]f|\\n)){5,40}"#
            .prop_map(String::into_bytes),
        r#"([a-z]{0,9}\\(u[0-9a-fA-F]{4}|[nt"\\xéu])){1,9}"#.prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn matches_a_byte_loop(content in content()) {
        let expected = naive(&content);
        prop_assert_eq!(unescape(&content), expected.clone());
        for isa in Isa::available() {
            let mut out = vec![0; content.len()];
            let (consumed, out_len) = isa.run(Pass::new(&content, out.as_mut_slice(), true));
            prop_assert_eq!((consumed, &out[..out_len]), (content.len(), expected.as_slice()));
        }
    }

    #[test]
    fn fills_exactly_the_space_that_was_counted(content in content()) {
        let expected = naive(&content);
        for isa in Isa::available() {
            let counted = isa.run(Pass::new(&content, Nowhere([0; WIDTH]), true));
            prop_assert_eq!(counted, (content.len(), expected.len()), "{:?}", isa);
            for len in 0..=expected.len() {
                let mut out = vec![0; len];
                let (consumed, out_len) = isa.run(Pass::new(&content, out.as_mut_slice(), true));
                prop_assert_eq!(&out[..out_len], &expected[..out_len], "{:?} into {} bytes", isa, len);
                prop_assert_eq!(consumed == content.len(), len == expected.len());
            }
        }
        prop_assert!(unescaped_len(&content).is_none_or(|len| len == expected.len()));
        let mut out = vec![0; expected.len()];
        prop_assert!(unescape_into(&content, &mut out));
        prop_assert_eq!(&out, &expected);
        prop_assert!(!unescape_into(&content, &mut vec![0; expected.len() + 1]));
    }

    #[test]
    fn may_be_cut_at_every_byte(content in content()) {
        let expected = naive(&content);
        for at in 0..=content.len() {
            let (mut unescaper, mut out) = (Unescaper::default(), Vec::new());
            unescaper.push(&content[..at], &mut out);
            unescaper.push(&content[at..], &mut out);
            unescaper.finish(&mut out);
            prop_assert_eq!(&out, &expected, "cut at {}", at);
        }
        let (mut unescaper, mut out) = (Unescaper::default(), Vec::new());
        content.iter().for_each(|byte| unescaper.push(&[*byte], &mut out));
        unescaper.finish(&mut out);
        prop_assert_eq!(out, expected);
    }

    #[test]
    fn matches_serde_json(text in crate::testing::text()) {
        let token = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(unescape(&token.as_bytes()[1..token.len() - 1]), text.into_bytes());
    }
}
