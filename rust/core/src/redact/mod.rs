//! Redaction: replaces secrets in every text of a payload, and keeps JSON valid.
//!
//! A text is what a reader sees: a whole payload that is not JSON, or a string (keys included) or number of one
//! that is, with its escapes decoded. A text that is itself JSON, or base64 of text, is redacted by its own
//! texts. So a pattern finds the same secrets whatever a payload is wrapped in. In CSV, each cell is a text as well.

mod cells;
mod encoded;
mod patterns;
#[cfg(test)]
mod tests;
mod tokens;

use std::ops::Range;

use crate::message::unescape;
use crate::reader::check_json;
use crate::scan::Isa;
pub use cells::redact_cells;
use encoded::Base64Text;
pub use patterns::Redactor;
use tokens::{Token, Tokens};

use crate::escaping::push_string;

/// Maximum number of JSON and base64 texts inside each other. Each base64 layer adds a third to the size, so 64
/// of them do not fit into a payload of 100 MB that starts from one word.
const MAX_LAYERS: usize = 64;

/// What secrets are replaced by.
pub const REPLACEMENT: &str = "[redacted]";

/// Finds and replaces the secrets of one text at a time.
pub trait Filter {
    /// Error that stops the redaction.
    type Error;

    /// Returns the text without its secrets, or `None` if it has none.
    ///
    /// # Errors
    /// Any error stops the redaction.
    fn filter(&mut self, text: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Returns the spans of secrets that extend over several tokens of a JSON document, in order. Every string
    /// and number that such a span touches is replaced as a whole.
    fn find_spanning(&mut self, json: &[u8]) -> Vec<Range<usize>> {
        let _ = json;
        Vec::new()
    }

    /// Whether a match can contain a quote. If not, `find_spanning` finds nothing in an object of strings.
    fn matches_quotes(&self) -> bool {
        false
    }
}

/// Returns a payload without its secrets, or `None` if it has none. What was JSON stays JSON.
///
/// # Errors
/// The first error of the filter.
pub fn redact<F: Filter>(data: &[u8], filter: &mut F) -> Result<Option<Vec<u8>>, F::Error> {
    redact_text(data, filter, 0)
}

fn redact_text<F: Filter>(text: &[u8], filter: &mut F, layer: usize) -> Result<Option<Vec<u8>>, F::Error> {
    if layer < MAX_LAYERS {
        if let Some(rest) = text.strip_prefix("\u{feff}".as_bytes()) {
            let redacted = redact_text(rest, filter, layer + 1)?;
            return Ok(redacted.map(|rest| ["\u{feff}".as_bytes(), &rest].concat()));
        }
        if is_document(text) {
            return redact_document(text, filter, layer);
        }
        if let Some(encoded) = Base64Text::detect(text)
            && let Some(decoded) = redact_text(&encoded.decoded, filter, layer + 1)?
        {
            // A secret may also look like base64 itself.
            let text = encoded.encode(&decoded);
            return Ok(Some(filter.filter(&text)?.unwrap_or(text)));
        }
    }
    filter.filter(text)
}

/// Whether a text is JSON or NDJSON. Bare numbers and literals are not: they are plain text as well.
fn is_document(text: &[u8]) -> bool {
    let first = text.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    matches!(first, Some(b'{' | b'[' | b'"')) && check_json(Isa::detect(), text, 0..text.len()).is_ok()
}

fn redact_document<F: Filter>(
    json: &[u8],
    filter: &mut F,
    layer: usize,
) -> Result<Option<Vec<u8>>, F::Error> {
    let spanning = filter.find_spanning(json);
    let mut spanning = spanning.iter().peekable();
    let mut out = Vec::new();
    let mut copied = 0;
    for token in Tokens::new(json, 0) {
        while spanning.next_if(|secret| secret.end <= token.span.start).is_some() {}
        let replacement = if spanning.peek().is_some_and(|secret| secret.start < token.span.end) {
            Some(REPLACEMENT.as_bytes().to_vec())
        } else {
            redact_token(json, &token, filter, layer)?
        };
        if let Some(replacement) = replacement {
            out.extend_from_slice(&json[copied..token.span.start]);
            push_string(&replacement, &mut out);
            copied = token.span.end;
        }
    }
    if copied == 0 {
        return Ok(None);
    }
    out.extend_from_slice(&json[copied..]);
    Ok(Some(out))
}

fn redact_token<F: Filter>(
    json: &[u8],
    token: &Token,
    filter: &mut F,
    layer: usize,
) -> Result<Option<Vec<u8>>, F::Error> {
    let content = &json[token.content()];
    if !token.is_string {
        return filter.filter(content);
    }
    if memchr::memchr(b'\\', content).is_none() {
        return redact_text(content, filter, layer + 1);
    }
    redact_text(&unescape(content), filter, layer + 1)
}
