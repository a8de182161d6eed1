//! Pages of items: whole ones, within a budget, found by an index.

use crate::error::{Error, Result};
use crate::index::{Entry, ItemIndex, Kind};
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
    /// A JSON array of the items, each as it stands in the payload.
    pub content: Vec<u8>,
    /// The number of the first item.
    pub offset: u64,
    /// How many items there are, the cut one included.
    pub returned: u64,
    /// How many items the payload has.
    pub total: u64,
    /// The item behind the last one shown; `None` exactly at the end.
    pub next_offset: Option<u64>,
    /// The first byte of the first item, in the payload.
    pub start: u64,
    /// The byte behind the last item.
    pub end: u64,
    /// The item, if it alone exceeds the budget: then it is the only one of the page.
    pub truncated: Option<Cut>,
}

/// Items of a payload of which `data` is the part that starts at byte `base`.
///
/// The part must hold what [`ItemIndex::span`] names, or less of it from its start on: then the page has fewer
/// items. An item that alone exceeds `max_bytes` comes back truncated, by itself.
///
/// # Errors
/// `InvalidArgument` for a limit or budget that nothing fits, or an index of lines; `CorruptIndex` if the
/// index is not this payload's, as far as that shows.
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
    if max_bytes < SMALLEST {
        return Err(Error::argument(format!("max_bytes must be at least {SMALLEST}")));
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
        });
    }
    let window = Window { data, base, index, isa: Isa::detect() };
    let start = window.find(items.start)?;
    let limit = items.end - items.start;
    let (content, returned, end) = match window.whole_items(start, limit, max_bytes - BRACKETS)? {
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
    })
}

const BRACKETS: usize = 2;
/// An item that does not fit is shown as `"[truncated]"` at the least.
const SMALLEST: usize = 13 + BRACKETS;

/// Content, how many items it has, and where the last of them ends.
type Whole = (Vec<u8>, u64, usize);

/// A part of a payload. Places are relative to it.
struct Window<'a> {
    data: &'a [u8],
    base: u64,
    index: &'a ItemIndex,
    isa: Isa,
}

impl Window<'_> {
    fn is_rows(&self) -> bool {
        self.index.kind() == Some(Kind::Ndjson)
    }

    /// A place in the payload as one in the window.
    fn place(&self, offset: u64) -> Result<usize> {
        let place = offset.checked_sub(self.base).and_then(|place| usize::try_from(place).ok());
        place.filter(|&place| place <= self.data.len()).ok_or_else(Self::too_short)
    }

    fn too_short() -> Error {
        Error::argument(
            "data does not hold these items; span() says which bytes do, and base where they start",
        )
    }

    fn differs() -> Error {
        Error::index("the items are not where it says")
    }

    /// Whether something can begin here: as much as a look at one byte says of an index of another payload.
    fn begins_item(&self, place: usize) -> bool {
        let before = place.checked_sub(1).and_then(|before| self.data.get(before));
        match before {
            // What is before the window is out of sight.
            None => true,
            Some(b'\n' | b' ' | b'\t' | b'\r') => self.is_rows(),
            Some(b'[' | b',') => !self.is_rows(),
            Some(_) => false,
        }
    }

    /// Where an item starts.
    fn find(&self, number: u64) -> Result<usize> {
        let Entry { offset, number: known } = self.index.entry_before(number);
        let mut place = self.place(offset)?;
        if !self.begins_item(place) {
            return Err(Self::differs());
        }
        let rest = &self.data[place..];
        let skip = number - known;
        if skip > 0 && self.is_rows() {
            place += Rows::inside(true).seek(self.isa, rest, skip).reached.ok_or_else(Self::differs)?;
        } else if skip > 0 {
            let passed = Nesting::inside().seek(self.isa, rest, skip);
            if passed.stop != Stop::Reached {
                return Err(Self::differs());
            }
            place += passed.consumed;
        }
        let white = self.data[place..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        Ok(place + white.count())
    }

    /// As many items from `start` on as fit; `None` if not even one does.
    fn whole_items(&self, start: usize, limit: u64, budget: usize) -> Result<Option<Whole>> {
        if self.is_rows() {
            Ok(self.whole_rows(start, limit, budget))
        } else {
            self.whole_values(start, limit, budget)
        }
    }

    fn whole_values(&self, start: usize, limit: u64, budget: usize) -> Result<Option<Whole>> {
        let rest = &self.data[start..];
        // One byte more than fits, for the comma behind the last item that does.
        let reach = &rest[..rest.len().min(budget.saturating_add(1))];
        let passed = Nesting::inside().seek(self.isa, reach, limit);
        let (end, count) = match passed.stop {
            Stop::Reached => (passed.consumed - 1, limit),
            Stop::Closed => (passed.consumed - 1, passed.commas + 1),
            Stop::Exhausted if passed.commas > 0 => {
                let end = Nesting::inside().seek(self.isa, reach, passed.commas).consumed;
                (end - 1, passed.commas)
            }
            Stop::Exhausted if reach.len() < rest.len() => return Ok(None),
            Stop::Exhausted => return Err(Self::differs()),
        };
        let item = trim(self.data, start..start + end);
        let mut content = Vec::with_capacity(item.len() + BRACKETS);
        content.push(b'[');
        content.extend_from_slice(&self.data[item.clone()]);
        content.push(b']');
        Ok(Some((content, count, item.end)))
    }

    fn whole_rows(&self, start: usize, limit: u64, budget: usize) -> Option<Whole> {
        let mut content = vec![b'['];
        let (mut count, mut end, mut place) = (0, start, start);
        while count < limit && place < self.data.len() {
            let Some(line) = self.line(place) else { break };
            place = line.end + 1;
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

    /// The rest of a line without its end; `None` if the window has not all of it.
    fn line(&self, start: usize) -> Option<std::ops::Range<usize>> {
        let is_last = self.base + self.data.len() as u64 >= self.index.end();
        match memchr::memchr(b'\n', &self.data[start..]) {
            Some(at) => Some(start..start + at),
            None => is_last.then_some(start..self.data.len()),
        }
    }

    /// The page of an item that is larger than the budget, or that ends in white space that is.
    fn cut_item(&self, number: u64, start: usize, max_bytes: usize) -> Result<ItemPage> {
        let item = trim(self.data, start..self.end_of(number, start)?);
        let value = &self.data[item.clone()];
        let total = self.index.len();
        let is_cut = value.len() + BRACKETS > max_bytes;
        let shown = if is_cut { truncate(value, &limits(max_bytes - BRACKETS))? } else { value.to_vec() };
        let start = self.base + item.start as u64;
        Ok(ItemPage {
            content: [b"[", &shown[..], b"]"].concat(),
            offset: number,
            returned: 1,
            total,
            next_offset: (number + 1 < total).then_some(number + 1),
            start,
            end: self.base + item.end as u64,
            truncated: is_cut.then_some(Cut {
                index: number,
                size_bytes: value.len() as u64,
                byte_offset: start,
            }),
        })
    }

    /// Where what is behind an item starts: its comma, the closing bracket, its line's end.
    fn end_of(&self, number: u64, start: usize) -> Result<usize> {
        if self.is_rows() {
            return self.line(start).map(|line| line.end).ok_or_else(Self::too_short);
        }
        // A large item is the last that starts in its block, so that the index knows where the next one is.
        let behind = match self.index.entry_after(number) {
            Some(entry) if entry.number == number + 1 => Some(entry.offset),
            None if number + 1 == self.index.len() => Some(self.index.end()),
            _ => None,
        };
        if let Some(behind) = behind {
            let end = self.place(behind)?.checked_sub(1).filter(|&end| end >= start);
            return end.ok_or_else(Self::differs);
        }
        match Nesting::inside().seek(self.isa, &self.data[start..], 1) {
            passed if passed.stop == Stop::Exhausted => Err(Self::differs()),
            passed => Ok(start + passed.consumed - 1),
        }
    }
}

/// Of one item as much as fits, whatever it is made of.
fn limits(max_bytes: usize) -> Limits {
    let most = usize::MAX;
    Limits { max_bytes, max_array_items: most, max_string_chars: most, max_depth: 64, max_object_keys: most }
}
