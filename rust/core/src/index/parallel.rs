//! Indexes a large payload with two threads.
//!
//! The second thread begins in the middle, where it cannot know the state: which containers are open, and whether it is
//! inside a string. It assumes that what is open near the start is still open there, and that the bytes before the cut
//! show where one item ends and the next begins. From there it reads up to the cut, where its state is compared with that
//! of the first thread. If they are the same, so is everything that follows from them: items and errors alike. If not,
//! the first thread reads the rest itself, so a wrong assumption costs time and changes nothing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;

use super::ItemIndex;
use super::indexer::{ItemIndexer, PIECE_BYTES};
use super::locator::Locator;
use crate::error::Result;
use crate::scan::nesting::{Nesting, Stop};
use crate::scan::{Isa, closing_quote};

/// Smaller payloads take one thread a few milliseconds, of which a second one would save little.
const MIN_PARALLEL_BYTES: usize = 8_000_000;

/// Divisor: the part of the payload that is read before the second thread begins to read. What comes before the items
/// is usually smaller.
const LEAD_PART: usize = 64;

/// Divisor: the largest such part. It is reached if no item is found before.
const MAX_LEAD_PART: usize = 8;

/// Divisor: the part of the payload in which the second thread looks for the end of an item.
const WINDOW_PART: usize = 128;
const MAX_WINDOW_BYTES: usize = 1 << 20;

/// Most containers that may end in the window. It bounds the time spent on a payload of brackets.
const MAX_CLOSED: usize = 64;

/// Bytes after which the second thread looks whether its result is still needed.
const CHECK_BYTES: usize = 4 * PIECE_BYTES;

/// How a payload is divided.
#[derive(Debug, Clone)]
pub(super) struct Division {
    /// Bytes that are read before the second thread begins to read.
    pub(super) lead: usize,
    /// If there is no item yet after `lead`, more is read until there is one, up to here.
    pub(super) max_lead: usize,
    /// Where the second thread looks for the end of an item. It begins there.
    pub(super) window: Range<usize>,
    /// Where the first thread stops.
    pub(super) cut: usize,
}

impl Division {
    /// Returns how to divide a payload of `len` bytes. `None` if one thread has to read it.
    pub(super) fn new(len: usize) -> Option<Self> {
        // `available_parallelism` reads files of the system, so it is called once.
        static HAS_PROCESSORS: OnceLock<bool> = OnceLock::new();
        let has_processors = || thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        let is_divided = len > MIN_PARALLEL_BYTES && *HAS_PROCESSORS.get_or_init(has_processors);
        is_divided.then(|| Self::in_two(len))
    }

    fn in_two(len: usize) -> Self {
        let pieces = |bytes: usize| bytes.next_multiple_of(PIECE_BYTES);
        let lead = pieces(len / LEAD_PART);
        let window = pieces(len / WINDOW_PART).min(MAX_WINDOW_BYTES);
        // Both threads read the bytes from the window to the cut. A whole piece before the cut is read by both in the
        // same way, which leaves the same state.
        let overlap = window + PIECE_BYTES;
        let cut = pieces((len + lead + overlap) / 2);
        Self { lead, max_lead: len / MAX_LEAD_PART, window: cut - overlap..cut - PIECE_BYTES, cut }
    }
}

/// How much of the second thread's work was of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    Everything,
    /// The items of the rest were located by the first thread.
    Validation,
    Nothing,
}

/// Indexes `data`, of which `indexer` has read nothing. The result is that of feeding it everything.
pub(super) fn index(mut indexer: ItemIndexer, data: &[u8], division: Division) -> (Result<ItemIndex>, Reuse) {
    let cut = division.cut;
    match indexer.read_up_to_cut(data, &division) {
        Ok(ahead) => indexer.finish_with(ahead, &data[cut..]),
        Err(error) => (Err(error), Reuse::Nothing),
    }
}

/// Indexes and validates like [`index_items`](super::index_items), always with two threads that divide the work at
/// `cut`. For comparisons: the result does not depend on it.
///
/// # Errors
/// Those of [`ItemIndexer`].
pub fn index_items_in_two(data: &[u8], path: Option<&str>, isa: Isa, cut: usize) -> Result<ItemIndex> {
    let cut = cut.min(data.len());
    let division = Division { lead: cut / 4, max_lead: cut / 2, window: cut / 2..cut, cut };
    index(ItemIndexer::with_isa(path, true, isa)?, data, division).0
}

/// What the second thread found.
struct Ahead {
    /// Its state at the cut.
    at_cut: ItemIndexer,
    /// Its state at the end of the payload, if the rest is valid.
    at_end: Result<Locator>,
}

impl ItemIndexer {
    /// Reads the bytes before the cut, and returns what a second thread has found in those after it.
    fn read_up_to_cut(&mut self, data: &[u8], division: &Division) -> Result<Option<Ahead>> {
        let Division { ref window, cut, .. } = *division;
        let is_needed = &AtomicBool::new(true);
        thread::scope(|scope| {
            // The second thread starts up while this one reads the lead. If it gets no state to begin with, it ends.
            let (sender, start) = mpsc::sync_channel::<Self>(1);
            let ahead = thread::Builder::new().spawn_scoped(scope, move || {
                start.recv().ok()?.read_ahead(data, window.clone(), cut, is_needed)
            });
            let lead = self.read_lead(data, division)?;
            // If the system has refused the second thread, there is no receiver, and this one reads everything.
            let _ = sender.send(self.clone());
            let first = self.feed(&data[lead..cut]);
            is_needed.store(first.is_ok(), Ordering::Relaxed);
            let ahead = ahead.ok().and_then(|ahead| ahead.join().ok().flatten());
            first.map(|()| ahead)
        })
    }

    /// Reads the lead, and more until an item is found, up to `max_lead`. Returns how many bytes were read.
    fn read_lead(&mut self, data: &[u8], division: &Division) -> Result<usize> {
        let mut lead = division.lead;
        self.feed(&data[..lead])?;
        while self.locator.separator_depth().is_none() && lead < division.max_lead {
            let more = division.max_lead.min(lead + PIECE_BYTES);
            self.feed(&data[lead..more])?;
            lead = more;
        }
        Ok(lead)
    }

    /// Reads from the end of an item in `window` to the end of the payload. Returns `None` if there is no item's end, or
    /// if the result is not needed.
    fn read_ahead(
        &self,
        data: &[u8],
        window: Range<usize>,
        cut: usize,
        is_needed: &AtomicBool,
    ) -> Option<Ahead> {
        let mut indexer = self.find_start(data, window, cut)?;
        // The first thread has counted these.
        indexer.locator.take_items();
        let at_cut = indexer.clone();
        for piece in data[cut..].chunks(CHECK_BYTES) {
            if !is_needed.load(Ordering::Relaxed) {
                return None;
            }
            if let Err(error) = indexer.feed(piece) {
                return Some(Ahead { at_cut, at_end: Err(error) });
            }
        }
        Some(Ahead { at_cut, at_end: indexer.finish_validation() })
    }

    /// Returns the state at the cut, if the bytes from the end of an item in `window` to the cut are valid.
    fn find_start(&self, data: &[u8], window: Range<usize>, cut: usize) -> Option<Self> {
        let depth = self.locator.separator_depth()?;
        item_starts(data, window, depth == 0).into_iter().find_map(|start| {
            let mut indexer = Self {
                validator: Some(self.validator.as_ref()?.after_separator(depth, start as u64)?),
                locator: self.locator.after_separator(start as u64),
            };
            indexer.feed(&data[start..cut]).ok()?;
            Some(indexer)
        })
    }

    /// Returns the index, with what the second thread has found in `rest`, the bytes that this indexer has not read.
    fn finish_with(mut self, ahead: Option<Ahead>, rest: &[u8]) -> (Result<ItemIndex>, Reuse) {
        let Some(Ahead { at_cut, at_end }) = ahead.filter(|ahead| self.is_validated_alike(&ahead.at_cut))
        else {
            return (self.feed(rest).and_then(|()| self.finish()), Reuse::Nothing);
        };
        let locator = match at_end {
            Ok(locator) => locator,
            Err(error) => return (Err(error), Reuse::Everything),
        };
        let mut here = self.locator.clone();
        let items = here.take_items();
        if here != at_cut.locator {
            self.locator.feed(rest);
            return (self.locator.finish(), Reuse::Validation);
        }
        let collection = here.open_collection();
        let index = locator.finish().map(|mut index| {
            if index.kind.map(|kind| (kind, index.start)) == collection {
                items.prepend_to(&mut index);
            }
            index
        });
        (index, Reuse::Everything)
    }

    fn is_validated_alike(&self, other: &Self) -> bool {
        let validators = self.validator.as_ref().zip(other.validator.as_ref());
        validators.is_some_and(|(validator, other)| validator.is_interchangeable(other))
    }
}

/// Returns where items may begin: after a newline in `window`, or after a comma in the outermost of the containers that
/// are open there.
fn item_starts(data: &[u8], window: Range<usize>, is_rows: bool) -> Vec<usize> {
    let Range { mut start, end } = window;
    if is_rows {
        let newline = memchr::memchr(b'\n', &data[start..end]);
        return newline.map(|at| start + at + 1).into_iter().collect();
    }
    // A byte that may be escaped would have two readings.
    while start < end && start > 0 && data[start - 1] == b'\\' {
        start += 1;
    }
    let (isa, window) = (Isa::detect(), &data[start..end]);
    // The window begins outside of a string, or inside.
    let outside = [Some(0), closing_quote(isa, window).map(|at| at + 1)];
    let outside = outside.into_iter().flatten();
    outside.filter_map(|from| Some(start + from + outermost_comma(isa, &window[from..])? + 1)).collect()
}

/// Returns the first comma in the outermost of the containers that are open in `bytes`, which begin outside of a string.
fn outermost_comma(isa: Isa, bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    for _ in 0..MAX_CLOSED {
        let progress = Nesting::inside().close(isa, &bytes[from..]);
        if progress.stop == Stop::Exhausted {
            let comma = Nesting::inside().seek(isa, &bytes[from..], 1);
            return (comma.stop == Stop::Reached).then(|| from + comma.consumed - 1);
        }
        from += progress.consumed;
    }
    None
}

#[cfg(test)]
mod tests;
