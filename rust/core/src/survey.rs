//! Detects the type of a payload while it streams by.

use crate::index::{ItemIndex, ItemIndexer, Kind, LineIndexer, RowIndexer};
use crate::validate::Utf8Validator;

/// Bytes that go through every check before the next ones do, so that they stay in the cache.
const PIECE_BYTES: usize = 32 * 1024;

/// U+FEFF in UTF-8. Some programs write it before their JSON or CSV.
pub(crate) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Type of a payload, judged by its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// One JSON value.
    Json,
    /// Several JSON values, one per line.
    Ndjson,
    /// UTF-8 without a NUL.
    Text,
    /// Anything else.
    Binary,
}

/// Result of a [`Survey`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// Type of the payload.
    pub nature: Nature,
    /// Index of its items, if it is JSON, NDJSON, or text with rows.
    pub items: Option<ItemIndex>,
    /// Index of its lines, unless it is binary.
    pub lines: Option<ItemIndex>,
}

/// Detects the type of a payload that arrives in pieces, and indexes it. The result does not depend on where
/// the payload is cut.
///
/// JSON may start with a byte order mark. Offsets in the index count it.
#[derive(Debug, Clone)]
pub struct Survey {
    json: Json,
    /// How many bytes of a byte order mark the payload has started with; `None` once other bytes followed.
    marked: Option<usize>,
    /// `None` unless the payload has rows.
    rows: Option<RowIndexer>,
    /// `None` once the payload is known to be binary.
    text: Option<(Utf8Validator, LineIndexer)>,
}

#[derive(Debug, Clone)]
enum Json {
    /// Nothing but white space so far.
    Undecided(Box<ItemIndexer>),
    Possible(Box<ItemIndexer>),
    No,
}

impl Survey {
    /// Creates a survey. `is_json` says whether to try JSON and NDJSON; `None` tries them only if the payload
    /// starts as an array or object, so that a lone number or word is text. `rows` is [`Kind::Csv`] or
    /// [`Kind::Tsv`] if text has rows.
    #[must_use]
    pub fn new(is_json: Option<bool>, rows: Option<Kind>) -> Self {
        let indexer = || Box::new(ItemIndexer::for_utf8());
        let json = match is_json {
            None => Json::Undecided(indexer()),
            Some(true) => Json::Possible(indexer()),
            Some(false) => Json::No,
        };
        Self {
            json,
            marked: Some(0),
            rows: rows.and_then(RowIndexer::new),
            text: Some((Utf8Validator::default(), LineIndexer::default())),
        }
    }

    /// Feeds the next piece of the payload.
    pub fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_BYTES) {
            let Some((text, lines)) = &mut self.text else { return };
            if text.feed(piece).is_some() || memchr::memchr(0, piece).is_some() {
                self.set_binary();
                return;
            }
            lines.feed(piece);
            if let Some(rows) = &mut self.rows {
                rows.feed(piece);
            }
            let rest = self.skip_mark(piece);
            self.feed_json(rest);
        }
    }

    /// Returns a piece without the byte order mark that the payload may start with. The indexer gets white space
    /// for the mark, so that its offsets are those of the payload.
    fn skip_mark<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        let Some(marked) = self.marked else { return piece };
        let missing = &BYTE_ORDER_MARK[marked..];
        let found = piece.iter().zip(missing).take_while(|(byte, expected)| byte == expected).count();
        if found == missing.len() {
            self.marked = None;
            self.feed_json(&[b' '; BYTE_ORDER_MARK.len()]);
        } else if found == piece.len() {
            self.marked = Some(marked + found);
        } else {
            // The rest of a character that starts like the mark is not JSON either.
            self.marked = None;
        }
        &piece[found..]
    }

    fn feed_json(&mut self, piece: &[u8]) {
        self.json = match std::mem::replace(&mut self.json, Json::No) {
            Json::Undecided(indexer) => {
                match piece.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
                    None => feed_indexer(indexer, piece).map_or(Json::No, Json::Undecided),
                    Some(b'[' | b'{') => feed_indexer(indexer, piece).map_or(Json::No, Json::Possible),
                    Some(_) => Json::No,
                }
            }
            Json::Possible(indexer) => feed_indexer(indexer, piece).map_or(Json::No, Json::Possible),
            Json::No => Json::No,
        };
    }

    /// Returns the result for all pieces.
    #[must_use]
    pub fn finish(mut self) -> Findings {
        if self.text.as_ref().is_some_and(|(text, _)| text.finish().is_some()) {
            self.set_binary();
        }
        let lines = self.text.map(|(_, lines)| lines.finish());
        let items = match self.json {
            Json::Possible(indexer) => indexer.finish().ok(),
            Json::Undecided(_) | Json::No => self.rows.and_then(RowIndexer::finish),
        };
        let nature = match (&items, &lines) {
            (Some(items), _) if items.is_ndjson() => Nature::Ndjson,
            (Some(items), _) if items.delimiter().is_some() => Nature::Text,
            (Some(_), _) => Nature::Json,
            (None, Some(_)) => Nature::Text,
            (None, None) => Nature::Binary,
        };
        Findings { nature, items, lines }
    }

    fn set_binary(&mut self) {
        self.json = Json::No;
        self.rows = None;
        self.text = None;
    }
}

fn feed_indexer(mut indexer: Box<ItemIndexer>, piece: &[u8]) -> Option<Box<ItemIndexer>> {
    indexer.feed(piece).ok()?;
    Some(indexer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{index_items, index_lines};
    use proptest::prelude::*;

    fn naive(bytes: &[u8], is_json: Option<bool>) -> Findings {
        if std::str::from_utf8(bytes).is_err() || bytes.contains(&0) {
            return Findings { nature: Nature::Binary, items: None, lines: None };
        }
        let lines = Some(index_lines(bytes));
        let blanked = bytes.strip_prefix(BYTE_ORDER_MARK).map(|rest| [b"   ", rest].concat());
        let json = blanked.as_deref().unwrap_or(bytes);
        let tries_json = is_json.unwrap_or(matches!(json.trim_ascii_start().first(), Some(b'[' | b'{')));
        let items = if tries_json { index_items(json, None, true).ok() } else { None };
        let nature = match &items {
            Some(items) if items.is_ndjson() => Nature::Ndjson,
            Some(_) => Nature::Json,
            None => Nature::Text,
        };
        Findings { nature, items, lines }
    }

    fn survey(pieces: &[&[u8]], is_json: Option<bool>) -> Findings {
        let mut survey = Survey::new(is_json, None);
        for piece in pieces {
            survey.feed(piece);
        }
        survey.finish()
    }

    #[test]
    fn distinguishes_types() {
        let nature = |bytes: &[u8]| survey(&[bytes], None).nature;
        assert_eq!(nature(b" \n [1,2]"), Nature::Json);
        assert_eq!(nature(b"{\"a\":1}\n{\"a\":2}\n"), Nature::Ndjson);
        assert_eq!(nature("\u{feff}[1,2]".as_bytes()), Nature::Json);
        assert_eq!(nature("\u{feff}{}\n{}".as_bytes()), Nature::Ndjson);
        assert_eq!(nature("\u{feff}text".as_bytes()), Nature::Text);
        assert_eq!(nature("\u{feff}\u{feff}[1]".as_bytes()), Nature::Text);
        assert_eq!(nature("\u{feff}".as_bytes()), Nature::Text);
        assert_eq!(nature(b"[INFO] started"), Nature::Text);
        assert_eq!(nature(b"[1,2"), Nature::Text);
        assert_eq!(nature(b"42"), Nature::Text);
        assert_eq!(nature(b""), Nature::Text);
        assert_eq!(nature(b"[\"\xff\"]"), Nature::Binary);
        assert_eq!(nature(b"a\0b"), Nature::Binary);
        assert_eq!(nature("é".as_bytes().split_last().expect("two bytes").1), Nature::Binary);
        assert_eq!(survey(&[b"42"], Some(true)).nature, Nature::Json);
        assert_eq!(survey(&[b"[42]"], Some(false)).nature, Nature::Text);
    }

    proptest! {
        #[test]
        fn every_cut_gives_the_same_result(
            bytes in prop_oneof![
                prop::collection::vec(prop_oneof![
                    Just(b'['), Just(b']'), Just(b'{'), Just(b'}'), Just(b'"'), Just(b'1'), Just(b','), Just(b':'),
                    Just(b'\n'), Just(b' '), Just(0xc3), Just(0xa9), any::<u8>(),
                ], 0..40),
                "\u{feff}?\u{fefe}?[ \n]{0,3}(\\[(1,|\"é\",){0,20}1\\]\n?){0,3}".prop_map(String::into_bytes),
            ],
            is_json in any::<Option<bool>>(),
        ) {
            let whole = naive(&bytes, is_json);
            for cut in 0..=bytes.len() {
                let (head, tail) = bytes.split_at(cut);
                prop_assert_eq!(&survey(&[head, tail], is_json), &whole, "cut at {}", cut);
            }
        }
    }
}
