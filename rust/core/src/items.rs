//! Pages of whole items within a byte budget, located by an index.

use crate::csv::{Columns, RowSplitter, count_line_breaks};
use crate::error::{Error, Result};
use crate::index::{Entry, ItemIndex, Kind};
use crate::map_entry::MapEntry;
use crate::ndjson::trim;
use crate::page::Cut;
use crate::range::Range;
use crate::scan::Isa;
use crate::scan::nesting::{Nesting, Stop};
use crate::scan::rows::Rows;
use crate::truncate::{Limits, truncate};

/// A page of items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemPage {
    /// A JSON array of the items, each copied verbatim. A row of CSV or TSV is an object of strings. An entry of a
    /// map is its value with the key as a first member `_key`; if the value is no object, or has a `_key` itself,
    /// the item is `{"_key": …, "_value": …}`.
    pub content: Vec<u8>,
    /// Number of the first item.
    pub offset: u64,
    /// How many items the page has, a truncated one included.
    pub returned: u64,
    /// How many items the payload has.
    pub total: u64,
    /// Number of the item after the last one returned; `None` at the end.
    pub next_offset: Option<u64>,
    /// Offset of the first item in the payload.
    pub start: u64,
    /// Offset of the byte after the last item.
    pub end: u64,
    /// Set if the first item alone exceeds the budget. It is then the only item of the page.
    pub truncated: Option<Cut>,
    /// Key of the truncated item, if it is an entry of a map and its key is text (has no lone surrogate).
    pub truncated_key: Option<String>,
}

/// Reads a page of items. `data` is the part of the payload that starts at byte `base`.
///
/// It must cover the bytes of [`ItemIndex::span`], or a prefix of them, which gives fewer items. An item that
/// alone exceeds `max_bytes` is truncated and returned alone.
///
/// # Errors
/// `InvalidArgument` for a limit of 0, a budget below 15 bytes, an index of lines, or `data` that lacks the
/// items; `CorruptIndex` if the index visibly belongs to another payload.
pub fn read_items(
    data: &[u8],
    base: u64,
    index: &ItemIndex,
    range: Range,
    max_bytes: usize,
) -> Result<ItemPage> {
    if index.kind() == Some(Kind::Lines) {
        return Err(Error::argument("this is an index of lines, which read_lines reads"));
    }
    if matches!(range, Range::Bounded { limit: 0, .. }) {
        return Err(Error::argument("limit must be at least 1"));
    }
    if max_bytes < MIN_PAGE_BYTES {
        return Err(Error::argument(format!("max_bytes must be at least {MIN_PAGE_BYTES}")));
    }
    let items = range.resolve(index.len());
    let total = index.len();
    if items.is_empty() {
        let (start, end) = (index.end(), index.end());
        return Ok(ItemPage {
            content: b"[]".to_vec(),
            offset: items.start,
            returned: 0,
            total,
            next_offset: None,
            start,
            end,
            truncated: None,
            truncated_key: None,
        });
    }
    let window = Window { data, base, index, isa: Isa::detect() };
    let start = window.find(items.start)?;
    let limit = items.end - items.start;
    let (content, returned, end) = match window.whole_items(start, limit, max_bytes - BRACKET_BYTES)? {
        Some(whole) => whole,
        None => return window.cut_item(items.start, start, max_bytes),
    };
    let next = items.start + returned;
    Ok(ItemPage {
        content,
        offset: items.start,
        returned,
        total,
        next_offset: (next < total).then_some(next),
        start: base + start as u64,
        end: base + end as u64,
        truncated: None,
        truncated_key: None,
    })
}

/// Returns the bytes of an item, without white space around it; `None` if the index belongs to another payload. `data`
/// may be the first part of the payload: an item that ends after it ends with it.
pub(crate) fn item_span(data: &[u8], index: &ItemIndex, number: u64) -> Option<std::ops::Range<usize>> {
    let window = Window { data, base: 0, index, isa: Isa::detect() };
    let start = window.find(number).ok()?;
    if index.delimiter().is_some() {
        return Some(window.row(start).unwrap_or(start..data.len()));
    }
    let end = window.item_end(number, start).unwrap_or(data.len());
    Some(trim(data, start..end))
}

const BRACKET_BYTES: usize = 2;
/// Smallest budget, in bytes: an item that does not fit is shown as `"[truncated]"`.
const MIN_PAGE_BYTES: usize = 13 + BRACKET_BYTES;

/// A page's content, its item count, and where its last item ends.
type WholeItems = (Vec<u8>, u64, usize);

/// A part of a payload. Positions are relative to its start.
struct Window<'a> {
    data: &'a [u8],
    base: u64,
    index: &'a ItemIndex,
    isa: Isa,
}

impl Window<'_> {
    fn is_ndjson(&self) -> bool {
        self.index.kind() == Some(Kind::Ndjson)
    }

    /// Converts a payload offset to a position in the window.
    fn position(&self, offset: u64) -> Result<usize> {
        let pos = offset.checked_sub(self.base).and_then(|pos| usize::try_from(pos).ok());
        pos.filter(|&pos| pos <= self.data.len()).ok_or_else(Self::too_short)
    }

    fn too_short() -> Error {
        Error::argument(
            "data does not hold these items; span() says which bytes do, and base where they start",
        )
    }

    fn wrong_index() -> Error {
        Error::index("the items are not where it says")
    }

    /// Whether an item can begin here, judged by the byte before. Detects most indexes of other payloads.
    fn can_begin_item(&self, pos: usize) -> bool {
        let before = pos.checked_sub(1).and_then(|before| self.data.get(before));
        match before {
            // The byte before the window is unknown.
            None => true,
            Some(b'\n' | b'\r') => !self.index.is_container(),
            Some(b' ' | b'\t') => self.is_ndjson(),
            Some(b'[') => self.index.kind() == Some(Kind::Array),
            Some(b'{') => self.index.is_map(),
            Some(b',') => self.index.is_container(),
            Some(_) => false,
        }
    }

    /// Returns where item `number` starts.
    fn find(&self, number: u64) -> Result<usize> {
        let Entry { offset, number: entry_number } = self.index.entry_before(number);
        let mut pos = self.position(offset)?;
        if !self.can_begin_item(pos) {
            return Err(Self::wrong_index());
        }
        let skip = number - entry_number;
        if let Some(delimiter) = self.index.delimiter() {
            let mut splitter = RowSplitter::inside(delimiter);
            for _ in 0..skip {
                pos += splitter.next_start(&self.data[pos..]).ok_or_else(Self::wrong_index)?;
            }
            return Ok(pos);
        }
        let rest = &self.data[pos..];
        if skip > 0 && self.is_ndjson() {
            pos += Rows::inside(true).seek(self.isa, rest, skip).reached.ok_or_else(Self::wrong_index)?;
        } else if skip > 0 {
            let progress = Nesting::inside().seek(self.isa, rest, skip);
            if progress.stop != Stop::Reached {
                return Err(Self::wrong_index());
            }
            pos += progress.consumed;
        }
        let white = self.data[pos..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        Ok(pos + white.count())
    }

    /// Returns as many items from `start` on as fit; `None` if not even one does.
    fn whole_items(&self, start: usize, limit: u64, budget: usize) -> Result<Option<WholeItems>> {
        if let Some(columns) = self.index.columns() {
            Ok(self.whole_rows(&columns, start, limit, budget))
        } else if self.is_ndjson() {
            Ok(self.whole_lines(start, limit, budget))
        } else if self.index.is_map() {
            self.whole_entries(start, limit, budget)
        } else {
            self.whole_values(start, limit, budget)
        }
    }

    fn whole_rows(&self, columns: &Columns, start: usize, limit: u64, budget: usize) -> Option<WholeItems> {
        let mut content = vec![b'['];
        let (mut count, mut end, mut pos) = (0, start, start);
        while count < limit && pos < self.data.len() {
            // An object is never shorter than its row, so a row that is too long need not be read.
            let Some(row) = self.row(pos).filter(|row| row.len() <= budget) else { break };
            let fitting = content.len();
            if count > 0 {
                content.push(b',');
            }
            columns.push_object(&self.data[row.clone()], &mut content);
            if content.len() - 1 > budget {
                content.truncate(fitting);
                break;
            }
            (count, end) = (count + 1, row.end);
            pos = row.end + count_line_breaks(&self.data[row.end..]);
        }
        content.push(b']');
        (count > 0).then_some((content, count, end))
    }

    /// Returns the row that starts here, without its line break; `None` if the window ends inside the row.
    fn row(&self, start: usize) -> Option<std::ops::Range<usize>> {
        let rest = &self.data[start..];
        match RowSplitter::inside(self.index.delimiter()?).row_end(rest) {
            Some(at) => Some(start..start + at),
            None => self.is_last().then_some(start..self.data.len()),
        }
    }

    /// Whether the window reaches the end of the items.
    fn is_last(&self) -> bool {
        self.base + self.data.len() as u64 >= self.index.end()
    }

    fn whole_values(&self, start: usize, limit: u64, budget: usize) -> Result<Option<WholeItems>> {
        let rest = &self.data[start..];
        // One byte beyond the budget, for the comma after the last item that fits.
        let window = &rest[..rest.len().min(budget.saturating_add(1))];
        let progress = Nesting::inside().seek(self.isa, window, limit);
        let (end, count) = match progress.stop {
            Stop::Reached => (progress.consumed - 1, limit),
            Stop::Closed => (progress.consumed - 1, progress.commas + 1),
            Stop::Exhausted if progress.commas > 0 => {
                let end = Nesting::inside().seek(self.isa, window, progress.commas).consumed;
                (end - 1, progress.commas)
            }
            Stop::Exhausted if window.len() < rest.len() => return Ok(None),
            Stop::Exhausted => return Err(Self::wrong_index()),
        };
        let item = trim(self.data, start..start + end);
        let mut content = Vec::with_capacity(item.len() + BRACKET_BYTES);
        content.push(b'[');
        content.extend_from_slice(&self.data[item.clone()]);
        content.push(b']');
        Ok(Some((content, count, item.end)))
    }

    fn whole_entries(&self, start: usize, limit: u64, budget: usize) -> Result<Option<WholeItems>> {
        let mut content = vec![b'['];
        let (mut count, mut end, mut pos) = (0, start, start);
        while count < limit {
            let rest = &self.data[pos..];
            // One byte beyond the budget, for the comma after an entry that fits. An item is not shorter than its
            // entry, except for white space.
            let window = &rest[..rest.len().min(budget.saturating_add(2).saturating_sub(content.len()))];
            let progress = Nesting::inside().seek(self.isa, window, 1);
            if progress.stop == Stop::Exhausted {
                if count == 0 && window.len() == rest.len() {
                    return Err(Self::wrong_index());
                }
                break;
            }
            let span = trim(self.data, pos..pos + progress.consumed - 1);
            let entry = self.entry(span.clone())?;
            let fitting = content.len();
            if count > 0 {
                content.push(b',');
            }
            entry.push_item(self.isa, &mut content);
            if content.len() - 1 > budget {
                content.truncate(fitting);
                break;
            }
            (count, end) = (count + 1, span.end);
            pos += progress.consumed;
            if progress.stop == Stop::Closed {
                break;
            }
        }
        content.push(b']');
        Ok((count > 0).then_some((content, count, end)))
    }

    fn whole_lines(&self, start: usize, limit: u64, budget: usize) -> Option<WholeItems> {
        let mut content = vec![b'['];
        let (mut count, mut end, mut pos) = (0, start, start);
        while count < limit && pos < self.data.len() {
            let Some(line) = self.line(pos) else { break };
            pos = line.end + 1;
            let row = trim(self.data, line);
            if row.is_empty() {
                continue;
            }
            if content.len() - 1 + usize::from(count > 0) + row.len() > budget {
                break;
            }
            if count > 0 {
                content.push(b',');
            }
            content.extend_from_slice(&self.data[row.clone()]);
            (count, end) = (count + 1, row.end);
        }
        content.push(b']');
        (count > 0).then_some((content, count, end))
    }

    /// Returns the rest of a line without its newline; `None` if the window ends inside the line.
    fn line(&self, start: usize) -> Option<std::ops::Range<usize>> {
        match memchr::memchr(b'\n', &self.data[start..]) {
            Some(at) => Some(start..start + at),
            None => self.is_last().then_some(start..self.data.len()),
        }
    }

    /// Returns the page of one item that does not fit. It is cut unless only the white space after it is too
    /// large.
    fn cut_item(&self, number: u64, start: usize, max_bytes: usize) -> Result<ItemPage> {
        let item = match self.index.delimiter() {
            Some(_) => self.row(start).ok_or_else(Self::too_short)?,
            None => trim(self.data, start..self.item_end(number, start)?),
        };
        let mut object = Vec::new();
        let entry = if self.index.is_map() { Some(self.entry(item.clone())?) } else { None };
        let value = match (self.index.columns(), &entry) {
            (Some(columns), _) => {
                columns.push_object(&self.data[item.clone()], &mut object);
                &object[..]
            }
            (None, Some(entry)) => {
                entry.push_item(self.isa, &mut object);
                &object[..]
            }
            (None, None) => &self.data[item.clone()],
        };
        let total = self.index.len();
        let is_cut = value.len() + BRACKET_BYTES > max_bytes;
        let shown = if is_cut {
            truncate(value, &Limits::of_bytes(max_bytes - BRACKET_BYTES))?
        } else {
            value.to_vec()
        };
        let start = self.base + item.start as u64;
        let (size_bytes, byte_offset) = match &entry {
            Some(entry) => (entry.value().len(), start + (item.len() - entry.value().len()) as u64),
            None => (value.len(), start),
        };
        Ok(ItemPage {
            content: [b"[", &shown[..], b"]"].concat(),
            offset: number,
            returned: 1,
            total,
            next_offset: (number + 1 < total).then_some(number + 1),
            start,
            end: self.base + item.end as u64,
            truncated: is_cut.then_some(Cut { index: number, size_bytes: size_bytes as u64, byte_offset }),
            truncated_key: entry.filter(|_| is_cut).and_then(|entry| entry.key_text()),
        })
    }

    /// Returns the entry of a map at a span without white space around it.
    fn entry(&self, span: std::ops::Range<usize>) -> Result<MapEntry<'_>> {
        MapEntry::split(self.isa, &self.data[span]).ok_or_else(Self::wrong_index)
    }

    /// Returns where an item ends: at its comma, the closing bracket or the end of its line.
    fn item_end(&self, number: u64, start: usize) -> Result<usize> {
        if self.is_ndjson() {
            return self.line(start).map(|line| line.end).ok_or_else(Self::too_short);
        }
        // A large item is the last one that starts in its block, so the index has an entry for the next item.
        let next = match self.index.entry_after(number) {
            Some(entry) if entry.number == number + 1 => Some(entry.offset),
            None if number + 1 == self.index.len() => Some(self.index.end()),
            _ => None,
        };
        if let Some(next) = next {
            let end = self.position(next)?.checked_sub(1).filter(|&end| end >= start);
            return end.ok_or_else(Self::wrong_index);
        }
        match Nesting::inside().seek(self.isa, &self.data[start..], 1) {
            progress if progress.stop == Stop::Exhausted => Err(Self::wrong_index()),
            progress => Ok(start + progress.consumed - 1),
        }
    }
}
