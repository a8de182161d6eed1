//! Splits a chunk of a payload into its items, and gives each item as JSON.

use std::ops::Range;

use crate::csv::{Columns, RowSplitter, count_line_breaks};
use crate::error::{Error, Result};
use crate::index::{ItemIndex, Kind};
use crate::map_entry::MapEntry;
use crate::ndjson::trim;
use crate::scan::Isa;
use crate::scan::nesting::{Nesting, Stop};

/// Splitter of chunks (see [`ItemIndex::chunk`]) into items of any kind.
///
/// ```
/// use forebay_core::{ItemSplitter, index_items};
///
/// let data = br#"{"rows": [{"id": 1}, {"id": 2}]}"#;
/// let index = index_items(data, None, true)?;
/// let chunk = index.chunk(0, 1 << 20).expect("there are items");
/// let bytes = &data[chunk.start as usize..chunk.end as usize];
/// let splitter = ItemSplitter::new(&index)?;
/// let mut buffer = Vec::new();
/// for span in splitter.spans(bytes) {
///     assert!(splitter.json(&bytes[span], &mut buffer).starts_with(b"{\"id\": "));
/// }
/// # Ok::<(), forebay_core::Error>(())
/// ```
pub struct ItemSplitter {
    kind: Kind,
    columns: Option<Columns>,
    isa: Isa,
}

impl ItemSplitter {
    /// Returns the splitter for the items of an index. Fails for an index of lines, or of no items.
    pub fn new(index: &ItemIndex) -> Result<Self> {
        match index.kind() {
            Some(kind) if kind != Kind::Lines => {
                Ok(Self { kind, columns: index.columns(), isa: Isa::detect() })
            }
            _ => Err(Error::argument("this index has no items; index_items makes one that has")),
        }
    }

    #[cfg(test)]
    fn with_isa(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// Returns the spans of the items in a chunk, without the white space around them.
    ///
    /// Their number differs from the chunk's `count` if the bytes are not those of the index.
    pub fn spans<'a>(&self, chunk: &'a [u8]) -> Spans<'a> {
        Spans { data: chunk, pos: 0, kind: self.kind, isa: self.isa }
    }

    /// Returns an item as JSON: the item itself, or the object of a row or of an entry of a map, which is written to
    /// `buffer`.
    pub fn json<'a>(&self, item: &'a [u8], buffer: &'a mut Vec<u8>) -> &'a [u8] {
        buffer.clear();
        if let Some(columns) = &self.columns {
            columns.push_object(item, buffer);
        } else if self.kind == Kind::Map
            && let Some(entry) = MapEntry::split(self.isa, item)
        {
            entry.push_item(self.isa, buffer);
        } else {
            return item;
        }
        buffer
    }

    /// Whether the items are rows of CSV or TSV, whose fields are all text.
    #[must_use]
    pub fn has_rows(&self) -> bool {
        self.columns.is_some()
    }
}

/// Iterator over the spans of items in a chunk.
#[derive(Debug, Clone)]
pub struct Spans<'a> {
    data: &'a [u8],
    pos: usize,
    kind: Kind,
    isa: Isa,
}

impl Iterator for Spans<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if let Some(delimiter) = self.kind.delimiter() {
            self.next_row(delimiter)
        } else if self.kind == Kind::Ndjson {
            self.next_line()
        } else {
            self.next_value()
        }
    }
}

impl Spans<'_> {
    fn next_value(&mut self) -> Option<Range<usize>> {
        let start = self.pos;
        let progress = Nesting::inside().seek(self.isa, &self.data[start..], 1);
        let end = start + progress.consumed;
        self.pos = match progress.stop {
            Stop::Reached => end,
            // What follows the closing bracket are no items.
            Stop::Closed => self.data.len(),
            Stop::Exhausted => {
                self.pos = self.data.len();
                return None;
            }
        };
        Some(trim(self.data, start..end - 1))
    }

    fn next_line(&mut self) -> Option<Range<usize>> {
        while self.pos < self.data.len() {
            let start = self.pos;
            let end = memchr::memchr(b'\n', &self.data[start..]).map_or(self.data.len(), |at| start + at);
            self.pos = self.data.len().min(end + 1);
            let line = trim(self.data, start..end);
            if !line.is_empty() {
                return Some(line);
            }
        }
        None
    }

    fn next_row(&mut self, delimiter: u8) -> Option<Range<usize>> {
        let start = self.pos;
        let rest = &self.data[start..];
        if rest.is_empty() {
            return None;
        }
        let len = RowSplitter::inside(delimiter).row_end(rest).unwrap_or(rest.len());
        self.pos = start + len + count_line_breaks(&rest[len..]);
        Some(start..start + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::index_items;
    use crate::items::read_items;
    use crate::survey::Survey;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Splits a payload chunk by chunk, and compares each item with a page of this item alone.
    fn check(data: &[u8], index: &ItemIndex, max_bytes: u64) {
        for isa in Isa::available() {
            let splitter = ItemSplitter::new(index).unwrap().with_isa(isa);
            let (mut buffer, mut block, mut number) = (Vec::new(), 0, 0);
            while let Some(chunk) = index.chunk(block, max_bytes) {
                assert_eq!(chunk.first, number);
                let bytes = &data[chunk.start as usize..chunk.end as usize];
                for span in splitter.spans(bytes) {
                    let range = crate::Range::Bounded { offset: number, limit: 1 };
                    let page = read_items(data, 0, index, range, usize::MAX >> 1).unwrap();
                    assert_eq!(chunk.start + span.start as u64, page.start, "item {number}");
                    assert_eq!(chunk.start + span.end as u64, page.end, "item {number}");
                    let json = splitter.json(&bytes[span], &mut buffer);
                    assert_eq!([b"[", json, b"]"].concat(), page.content, "item {number}");
                    number += 1;
                }
                assert_eq!(number, chunk.first + chunk.count);
                block += chunk.block_count;
            }
            assert_eq!(number, index.len());
        }
    }

    fn rows(data: &[u8], kind: Kind) -> ItemIndex {
        let mut survey = Survey::new(Some(false), Some(kind));
        survey.feed(data);
        survey.finish().items.unwrap()
    }

    #[test]
    fn splits_every_kind_of_items() {
        let values = (0..9000).map(|i| format!(" {{\"id\": {i}, \"t\": [\"a,\\\"b]\", {{}}]}} "));
        let values: Vec<String> = values.collect();
        for (open, close) in [("[", "]"), ("{\"a\": 1, \"b\": {\"rows\": [", "]}, \"c\": [1]}")] {
            let data = format!("{open}{}{close}\n", values.join(",\n"));
            let index = index_items(data.as_bytes(), None, true).unwrap();
            assert!(index.len() == 9000 && index.block_count() > 3);
            for max_bytes in [0, 200_000, u64::MAX] {
                check(data.as_bytes(), &index, max_bytes);
            }
        }
        let entries: Vec<String> = values.iter().map(|value| format!("\"k,}}\\\"\" :{value}")).collect();
        let data = format!("{{\"a\": {{ {} }}}}", entries.join(",\n"));
        let index = index_items(data.as_bytes(), None, true).unwrap();
        assert!(index.len() == 9000 && index.is_map());
        check(data.as_bytes(), &index, 200_000);
        let data = format!("\n\r\n {}\n\n  ", values.join("\r\n \n   "));
        check(data.as_bytes(), &index_items(data.as_bytes(), None, true).unwrap(), 70_000);
        let data = format!(
            "\u{feff}id,name\r\n\r\n{}",
            "1,\"a \"\"b\"\"\n,\"\r\n\r\n2,é,three\r\"\"\r".repeat(6000)
        );
        check(data.as_bytes(), &rows(data.as_bytes(), Kind::Csv), 70_000);
        check("a\tb\n1\t2".as_bytes(), &rows(b"a\tb\n1\t2", Kind::Tsv), 1);
    }

    #[test]
    fn an_index_without_items_has_no_splitter() {
        for index in [index_items(b"{}", None, true).unwrap(), crate::index_lines(b"a\nb")] {
            assert!(ItemSplitter::new(&index).is_err());
        }
    }

    proptest! {
        #[test]
        fn items_are_those_of_pages(values in prop::collection::vec(crate::testing::json(), 1..12), is_pretty: bool) {
            let array = Value::from(values.clone());
            let data = if is_pretty { serde_json::to_vec_pretty(&array) } else { serde_json::to_vec(&array) };
            let data = data.unwrap();
            check(&data, &index_items(&data, None, true).unwrap(), 1);
            let map: Value = values.iter().enumerate().map(|(i, value)| (i.to_string(), value.clone())).collect();
            let data = if is_pretty { serde_json::to_vec_pretty(&map) } else { serde_json::to_vec(&map) };
            let data = data.unwrap();
            check(&data, &index_items(&data, Some(""), true).unwrap(), 1);
            let lines: Vec<String> = values.iter().map(Value::to_string).collect();
            let data = format!("{}\n1", lines.join("\n"));
            check(data.as_bytes(), &index_items(data.as_bytes(), None, true).unwrap(), 1);
        }

        #[test]
        fn rows_are_those_of_pages(text in "(a,b\n)([ab,\"\r\n]|é){1,40}x") {
            check(text.as_bytes(), &rows(text.as_bytes(), Kind::Csv), 1);
        }

        #[test]
        fn other_bytes_give_no_more_items_than_bytes(data in prop::collection::vec(any::<u8>(), 0..200), kind in 0..5_usize) {
            let kind = [Kind::Array, Kind::Map, Kind::Ndjson, Kind::Csv, Kind::Tsv][kind];
            for isa in Isa::available() {
                let spans = Spans { data: &data, pos: 0, kind, isa };
                prop_assert!(spans.count() <= data.len());
            }
        }
    }
}
