//! Skips items that cannot match because they lack a text that a condition requires.

use std::ops::Range;

use memchr::memmem::Finder;

use super::condition::Test;
use super::{Fields, Filter};

/// Bytes of a chunk in which the literals are counted, to find the rarest.
const SAMPLE_BYTES: usize = 1 << 15;

/// Maximum number of literals to choose from.
const MAX_LITERALS: usize = 8;

/// Finds the items of a chunk that may match: those with the rarest literal that every match contains, and
/// those with an escape (in rows: a quote) that could hide this literal.
pub(super) struct Candidates<'a> {
    data: &'a [u8],
    /// The literal, and the escape or quote that could hide it; `None` if any item may match.
    finders: Option<[Finder<'static>; 2]>,
    /// Where each of them is next found.
    next: [usize; 2],
}

impl<'a> Candidates<'a> {
    pub(super) fn new(filter: &Filter, has_rows: bool, data: &'a [u8]) -> Self {
        let literals = if has_rows { filter.cell_literals() } else { filter.json_literals() };
        let sample = &data[..data.len().min(SAMPLE_BYTES)];
        let finders =
            literals.into_iter().take(MAX_LITERALS).map(|literal| Finder::new(&literal).into_owned());
        let rarest = finders.min_by_key(|finder| finder.find_iter(sample).count());
        // In JSON, only a \u escape can hide a literal; in a row, quotes inside it can.
        let mark: &[u8] = if has_rows { b"\"" } else { b"\\u" };
        let finders = rarest.map(|literal| [literal, Finder::new(mark).into_owned()]);
        Self { data, finders, next: [0; 2] }
    }

    /// Whether the item at a span may match. Spans must come in order.
    pub(super) fn may_match(&mut self, span: &Range<usize>) -> bool {
        let Some(finders) = &self.finders else { return true };
        finders.iter().zip(&mut self.next).any(|(finder, next)| {
            if *next < span.start {
                let found = finder.find(&self.data[span.start..]);
                *next = found.map_or(self.data.len(), |at| span.start + at);
            }
            *next < span.end
        })
    }
}

impl Filter {
    /// Returns literals that every matching item contains, unless it has `\u` escapes.
    fn json_literals(&self) -> Vec<Vec<u8>> {
        // A slash may be escaped as well, and quotes, backslashes and control characters must be.
        let is_plain =
            |text: &str| !text.bytes().any(|byte| byte < 0x20 || matches!(byte, b'"' | b'\\' | b'/'));
        let quoted = |text: &str| [b"\"", text.as_bytes(), b"\""].concat();
        let mut literals = Vec::new();
        for test in self.required_tests() {
            match test {
                Test::OneOf(scalars) => {
                    literals.extend(scalars.only_text().filter(|text| is_plain(text)).map(quoted));
                }
                Test::Contains(_, scalars) => {
                    let text = scalars.only_text().filter(|text| is_plain(text) && !text.is_empty());
                    literals.extend(text.map(|text| text.as_bytes().to_vec()));
                }
                _ => {}
            }
        }
        self.fields.required_keys(self, &mut |key| {
            // These two are not in the payload if the items are entries of a map.
            if is_plain(key) && !matches!(key, "_key" | "_value") {
                literals.push(quoted(key));
            }
        });
        literals
    }

    /// Returns literals that every matching row contains, unless it has quotes.
    fn cell_literals(&self) -> Vec<Vec<u8>> {
        // Invalid UTF-8 in a row is read as U+FFFD.
        let is_plain = |text: &&str| !text.is_empty() && !text.contains(['"', '\u{fffd}']);
        let texts = self.required_tests().filter_map(|test| match test {
            Test::OneOf(scalars) | Test::Contains(_, scalars) => scalars.only_text().filter(is_plain),
            _ => None,
        });
        texts.map(|text| text.as_bytes().to_vec()).collect()
    }

    fn required_tests(&self) -> impl Iterator<Item = &Test> {
        self.conditions.iter().filter(|condition| !condition.is_negated).map(|condition| &condition.test)
    }
}

impl Fields {
    /// Calls `on_key` with the last key of each path that every match must have.
    fn required_keys(&self, filter: &Filter, on_key: &mut impl FnMut(&str)) {
        for (key, child) in &self.children {
            let mut conditions = child.conditions.iter().map(|&at| &filter.conditions[at]);
            if conditions.any(|condition| !condition.is_negated && condition.has_one_path) {
                on_key(key);
            }
            child.required_keys(filter, on_key);
        }
    }
}
