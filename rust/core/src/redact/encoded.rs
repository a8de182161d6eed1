//! Text that is base64 of text: the data of a blob, or of a `data:` URL.

use base64::Engine;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Minimum length. Many a shorter word is base64 of some text by chance.
const MIN_CHARS: usize = 16;

/// Characters that are decoded first: most words are no base64 of text, and their first bytes tell.
const PROBE_CHARS: usize = 16;

static STANDARD_PADDED: GeneralPurpose = engine(&STANDARD, true);
static URL_SAFE_PADDED: GeneralPurpose = engine(&URL_SAFE, true);
static STANDARD_UNPADDED: GeneralPurpose = engine(&STANDARD, false);
static URL_SAFE_UNPADDED: GeneralPurpose = engine(&URL_SAFE, false);

const fn engine(alphabet: &Alphabet, has_padding: bool) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new()
        .with_encode_padding(has_padding)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(alphabet, config)
}

/// A base64 text, decoded.
pub(super) struct Base64Text<'a> {
    /// The start of a `data:` URL, or nothing.
    prefix: &'a [u8],
    pub(super) decoded: Vec<u8>,
    engine: &'static GeneralPurpose,
}

impl<'a> Base64Text<'a> {
    /// Decodes a text that is base64, of the standard or the URL-safe alphabet, if its content is text as well.
    pub(super) fn detect(text: &'a [u8]) -> Option<Self> {
        let (prefix, body) = split_data_url(text);
        if body.len() < MIN_CHARS || !body.iter().all(|byte| is_base64(*byte)) {
            return None;
        }
        let is_url_safe = body.iter().any(|byte| matches!(byte, b'-' | b'_'));
        let decoder = if is_url_safe { &URL_SAFE_PADDED } else { &STANDARD_PADDED };
        if !starts_as_text(decoder, body) {
            return None;
        }
        let chars: Vec<u8> = body.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
        let decoded = decoder.decode(&chars).ok()?;
        simdutf8::basic::from_utf8(&decoded).ok().filter(|text| is_text(text))?;
        // Without `=` and with whole groups, only the alphabet hints at what a decoder expects.
        let has_padding = chars.ends_with(b"=") || (chars.len().is_multiple_of(4) && !is_url_safe);
        let engine = match (is_url_safe, has_padding) {
            (false, true) => &STANDARD_PADDED,
            (false, false) => &STANDARD_UNPADDED,
            (true, true) => &URL_SAFE_PADDED,
            (true, false) => &URL_SAFE_UNPADDED,
        };
        Some(Self { prefix, decoded, engine })
    }

    /// Encodes another text in the same way.
    pub(super) fn encode(&self, text: &[u8]) -> Vec<u8> {
        [self.prefix, self.engine.encode(text).as_bytes()].concat()
    }
}

/// Whether the first characters decode to the start of a text.
fn starts_as_text(decoder: &GeneralPurpose, body: &[u8]) -> bool {
    let probe = &body[..body.len().min(PROBE_CHARS)];
    if probe.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        return true;
    }
    let mut bytes = [0; PROBE_CHARS];
    let Ok(len) = decoder.decode_slice(probe, &mut bytes) else { return false };
    match std::str::from_utf8(&bytes[..len]) {
        Ok(text) => is_text(text),
        // The probe may cut a character.
        Err(error) => error.error_len().is_none(),
    }
}

/// Whether the store would take a payload for text, such as a log with escape sequences for a terminal.
fn is_text(text: &str) -> bool {
    memchr::memchr(0, text.as_bytes()).is_none()
}

/// Splits a `data:` URL after `;base64,`. Another text has an empty prefix.
fn split_data_url(text: &[u8]) -> (&[u8], &[u8]) {
    const MARK: &[u8] = b";base64,";
    let is_url = text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"data:"));
    let mark = if is_url { memchr::memmem::find(text, MARK) } else { None };
    mark.map_or((&[], text), |at| text.split_at(at + MARK.len()))
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'\r' | b'\n')
}
