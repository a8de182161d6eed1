//! Maps byte offsets to item numbers.

use super::{Entry, ItemIndex, Kind};
use crate::csv::RowSplitter;
use crate::scan::Isa;
use crate::scan::nesting::Nesting;
use crate::scan::rows::Rows;

/// Maps ascending byte offsets to item numbers, in one pass over the payload.
pub(crate) struct ItemFinder<'a> {
    data: &'a [u8],
    index: &'a ItemIndex,
    isa: Isa,
    /// The last offset looked up, and its item.
    at: Entry,
    counter: Counter,
}

/// Counter of the items that begin after an entry, of one kind.
#[derive(Clone, Copy)]
enum Counter {
    Values(Nesting),
    Lines(Rows),
    Rows(RowSplitter),
}

impl Counter {
    fn new(kind: Option<Kind>) -> Self {
        match (kind, kind.and_then(Kind::delimiter)) {
            (_, Some(delimiter)) => Self::Rows(RowSplitter::inside(delimiter)),
            (Some(Kind::Array | Kind::Map), _) => Self::Values(Nesting::inside()),
            _ => Self::Lines(Rows::inside(kind == Some(Kind::Ndjson))),
        }
    }

    fn count(&mut self, isa: Isa, bytes: &[u8]) -> u64 {
        match self {
            Self::Values(nesting) => nesting.close(isa, bytes).commas,
            Self::Lines(rows) => rows.count(isa, bytes),
            Self::Rows(splitter) => splitter.count(bytes),
        }
    }
}

impl<'a> ItemFinder<'a> {
    pub(crate) fn new(data: &'a [u8], index: &'a ItemIndex) -> Self {
        let at = Entry { offset: 0, number: 0 };
        Self { data, index, isa: Isa::detect(), at, counter: Counter::new(index.kind()) }
    }

    /// Returns the number of the item that the byte at `offset` belongs to; `None` outside the items. A comma
    /// belongs to the item before it.
    pub(crate) fn item_at(&mut self, offset: u64) -> Option<u64> {
        let entry = self.index.entry_at(offset)?;
        if offset >= self.index.end {
            return None;
        }
        if entry.offset >= self.at.offset {
            self.at = entry;
            self.counter = Counter::new(self.index.kind());
        }
        let skipped = usize::try_from(self.at.offset).ok()?..usize::try_from(offset).ok()?;
        // Counts the items that begin before `offset`; a line or row that begins at `offset` itself is added below.
        self.at.number += self.counter.count(self.isa, self.data.get(skipped)?);
        self.at.offset = offset;
        let byte = self.data.get(usize::try_from(offset).ok()?..)?.first()?;
        match self.counter {
            // A comma belongs to the item before it.
            Counter::Values(_) => Some(self.at.number),
            mut counter => Some(self.at.number + counter.count(self.isa, &[*byte])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{index_items, index_lines};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn array_items_end_after_their_comma(items in prop::collection::vec(prop_oneof![Just("1"), Just("[2, 3]"), Just(" \"a,b\" "), Just("{\"k\": [0,0]}\n")], 1..40), step in 1..9_usize) {
            let data = format!("{{\"a\": [{}]}}", items.join(","));
            let index = index_items(data.as_bytes(), None, true).unwrap();
            let mut expected = vec![None; 7];
            for (number, item) in items.iter().enumerate() {
                // The last item is followed by the bracket instead of a comma.
                expected.extend(vec![Some(number as u64); item.len() + 1]);
            }
            expected.push(None);
            let mut finder = ItemFinder::new(data.as_bytes(), &index);
            for (offset, item) in expected.iter().enumerate().step_by(step) {
                prop_assert_eq!(finder.item_at(offset as u64), *item, "{} of {}", offset, data);
            }
        }

        #[test]
        fn map_entries_end_after_their_comma(values in prop::collection::vec(prop_oneof![Just("1"), Just("[2, 3]"), Just(" \"a,b\" "), Just("{\"k,\": [0,0]}\n")], 1..40), step in 1..9_usize) {
            let entries: Vec<String> = values.iter().map(|value| format!(" \"k,\\\"}}\" :{value}")).collect();
            let data = format!("{{\"a\": {{{}}}}}", entries.join(","));
            let index = index_items(data.as_bytes(), Some("/a"), true).unwrap();
            let mut expected = vec![None; 7];
            for (number, entry) in entries.iter().enumerate() {
                expected.extend(vec![Some(number as u64); entry.len() + 1]);
            }
            expected.push(None);
            let mut finder = ItemFinder::new(data.as_bytes(), &index);
            for (offset, item) in expected.iter().enumerate().step_by(step) {
                prop_assert_eq!(finder.item_at(offset as u64), *item, "{} of {}", offset, data);
            }
        }

        #[test]
        fn lines_end_after_their_newline(text in "[a\n]{1,300}", step in 1..9_usize) {
            let index = index_lines(text.as_bytes());
            let mut finder = ItemFinder::new(text.as_bytes(), &index);
            for offset in (0..text.len()).step_by(step) {
                let line = text[..offset].matches('\n').count() as u64;
                prop_assert_eq!(finder.item_at(offset as u64), Some(line));
            }
        }

        #[test]
        fn rows_begin_at_their_first_byte(rows in prop::collection::vec("(1|\\[2\\]) ?(\n){1,3} ?", 2..60), step in 1..9_usize) {
            let data = rows.concat();
            let index = index_items(data.as_bytes(), None, true).unwrap();
            let mut finder = ItemFinder::new(data.as_bytes(), &index);
            for offset in (0..data.len()).step_by(step) {
                let started = data[..=offset].lines().filter(|line| !line.trim().is_empty()).count() as u64;
                prop_assert_eq!(finder.item_at(offset as u64), started.checked_sub(1), "{} of {:?}", offset, data);
            }
        }
    }
}
