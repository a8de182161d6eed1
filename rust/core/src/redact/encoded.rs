//! Text that is base64 of text: the data of a blob, or of a `data:` URL.

use base64::Engine;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Minimum length: four characters are three bytes.
const MIN_CHARS: usize = 4;

/// A base64 text, decoded.
pub(super) struct Base64Text<'a> {
    /// The start of a `data:` URL, or nothing.
    prefix: &'a [u8],
    pub(super) decoded: Vec<u8>,
    alphabet: Alphabet,
    has_padding: bool,
}

impl<'a> Base64Text<'a> {
    /// Decodes a text that is base64, of the standard or the URL-safe alphabet, if its content is text as well.
    pub(super) fn detect(text: &'a [u8]) -> Option<Self> {
        let (prefix, body) = split_data_url(text);
        if body.len() < MIN_CHARS || !body.iter().all(|byte| is_base64(*byte)) {
            return None;
        }
        let chars: Vec<u8> = body.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
        let is_url_safe = chars.iter().any(|byte| matches!(byte, b'-' | b'_'));
        let alphabet = if is_url_safe { URL_SAFE } else { STANDARD };
        let decoded = engine(&alphabet, true).decode(&chars).ok()?;
        simdutf8::basic::from_utf8(&decoded).ok()?;
        // Without `=` and with whole groups, only the alphabet hints at what a decoder expects.
        let has_padding = chars.ends_with(b"=") || (chars.len() % 4 == 0 && !is_url_safe);
        Some(Self { prefix, decoded, alphabet, has_padding })
    }

    /// Encodes another text in the same way.
    pub(super) fn encode(&self, text: &[u8]) -> Vec<u8> {
        let encoded = engine(&self.alphabet, self.has_padding).encode(text);
        [self.prefix, encoded.as_bytes()].concat()
    }
}

fn engine(alphabet: &Alphabet, has_padding: bool) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new()
        .with_encode_padding(has_padding)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(alphabet, config)
}

/// Splits a `data:` URL after `;base64,`. Another text has an empty prefix.
fn split_data_url(text: &[u8]) -> (&[u8], &[u8]) {
    const MARK: &[u8] = b";base64,";
    let is_url = text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"data:"));
    match memchr::memmem::find(text, MARK) {
        Some(at) if is_url => text.split_at(at + MARK.len()),
        _ => (&[], text),
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'\r' | b'\n')
}
