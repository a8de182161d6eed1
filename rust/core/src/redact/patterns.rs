//! Redaction by regular expressions.

use std::borrow::Cow;
use std::convert::Infallible;
use std::ops::Range;

use super::tokens::{Token, Tokens};
use super::{Filter, REPLACEMENT};
use crate::error::Result;
use crate::index::Kind;
use crate::message::unescape;
use crate::search::{Pattern, TextSearcher};

/// Maximum size of a document that is searched without [`Pattern::matches`]: setting up the memory of an iterator takes
/// longer than searching a row.
const MAX_SMALL_BYTES: usize = 16 << 10;

/// Replaces every match of some regular expressions by [`REPLACEMENT`].
///
/// An expression that matches a key and its value, such as `"password": "[^"]*"`, finds them in the JSON as it is
/// written; then both are replaced. Such a match does not count if a text that it touches has a match of its own:
/// `token=.*` ends with the text it is in. In CSV, the key is the name of the column, which stays.
#[derive(Debug)]
pub struct Redactor {
    patterns: Vec<Pattern>,
}

impl Redactor {
    /// Compiles the expressions. Their syntax is that of [`Pattern::regex`].
    ///
    /// # Errors
    /// `InvalidPattern` or `InvalidArgument` for one that cannot be used.
    pub fn new<S: AsRef<str>>(expressions: &[S]) -> Result<Self> {
        let compile = |expression: &S| Pattern::regex(expression.as_ref(), false);
        Ok(Self { patterns: expressions.iter().map(compile).collect::<Result<_>>()? })
    }

    /// Returns a payload without its secrets, or `None` if it has none. What was JSON stays JSON.
    #[must_use]
    pub fn redact(&self, data: &[u8]) -> Option<Vec<u8>> {
        let Ok(redacted) = super::redact(data, &mut self.filter());
        redacted
    }

    /// Returns CSV or TSV without the secrets of its cells, or `None` if they have none. The rows and columns stay.
    #[must_use]
    pub fn redact_cells(&self, data: &[u8], kind: Kind) -> Option<Vec<u8>> {
        let Ok(redacted) = super::redact_cells(data, kind, &mut self.filter());
        redacted
    }

    fn filter(&self) -> PatternFilter<'_> {
        let searchers = self.patterns.iter().map(Pattern::searcher).collect();
        PatternFilter { patterns: &self.patterns, searchers }
    }
}

struct PatternFilter<'a> {
    patterns: &'a [Pattern],
    searchers: Vec<TextSearcher<'a>>,
}

impl Filter for PatternFilter<'_> {
    type Error = Infallible;

    fn filter(&mut self, text: &[u8]) -> std::result::Result<Option<Vec<u8>>, Infallible> {
        let mut secrets = Vec::new();
        for searcher in &mut self.searchers {
            let mut pos = 0;
            while let Some(found) = searcher.find(text, pos) {
                pos = found.end;
                secrets.push(found);
            }
        }
        if secrets.is_empty() {
            return Ok(None);
        }
        let mut out = Vec::with_capacity(text.len());
        let mut copied = 0;
        for secret in merge(secrets) {
            out.extend_from_slice(&text[copied..secret.start]);
            out.extend_from_slice(REPLACEMENT.as_bytes());
            copied = secret.end;
        }
        out.extend_from_slice(&text[copied..]);
        Ok(Some(out))
    }

    fn find_spanning(&mut self, json: &[u8]) -> Vec<Range<usize>> {
        let mut secrets = Vec::new();
        for (pattern, searcher) in self.patterns.iter().zip(&mut self.searchers) {
            let mut tokens = Tokens::new(json, 0).peekable();
            let mut pos = 0;
            let mut matches = (json.len() > MAX_SMALL_BYTES).then(|| pattern.matches(json, 0));
            while let Some(found) = match &mut matches {
                Some(matches) => matches.next(),
                None => searcher.find(json, pos),
            } {
                pos = found.end;
                while tokens.next_if(|token| token.span.end <= found.start).is_some() {}
                let Some(first) = tokens.peek() else { break };
                let content = first.content();
                if content.start <= found.start && found.end <= content.end {
                    continue;
                }
                let mut touched =
                    Tokens::new(json, first.span.start).take_while(|token| token.span.start < found.end);
                if !touched.any(|token| searcher.find(&decode(json, &token), 0).is_some()) {
                    secrets.push(found);
                }
            }
        }
        merge(secrets)
    }

    fn matches_quotes(&self) -> bool {
        self.patterns.iter().any(Pattern::matches_quotes)
    }
}

fn decode<'a>(json: &'a [u8], token: &Token) -> Cow<'a, [u8]> {
    let content = &json[token.content()];
    match memchr::memchr(b'\\', content) {
        Some(_) => Cow::Owned(unescape(content)),
        None => Cow::Borrowed(content),
    }
}

/// Sorts spans, and joins those that overlap.
fn merge(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}
