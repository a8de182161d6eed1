//! Validates JSON (RFC 8259) and NDJSON, 64 bytes at a time.
//!
//! Every rule is a mask of the bytes that break it, so the position of an error is the lowest bit of all of
//! them: the first byte at which the payload can no longer become valid.

mod block;
#[cfg(test)]
mod naive;
mod number;
mod packed;
mod packed_scalars;
mod quick;
mod stack;
mod text;

use crate::error::{Error, Result};
use crate::scan::nesting::Nesting;
use crate::scan::{Block, Isa, Kernel, WIDTH};
use block::{State, Violations};
use packed::{Buffers, PackedQuick};
use quick::Quick;
pub(crate) use text::Utf8Validator;

/// Fewer bytes are not worth the buffers of [`PackedQuick`]. The tests use it for the shortest payloads, too.
const MIN_PACKED_BYTES: usize = if cfg!(test) { 1 } else { 4096 };

/// The commas directly inside one of the open containers, or the newlines between rows.
#[derive(Debug, Clone, Copy, Default)]
struct SeparatorCount {
    /// How many containers are open there; 0 between rows.
    depth: u64,
    separators: u64,
    /// Whether the container was open all the time, and every block was counted.
    is_exact: bool,
}

/// Result of counting in some bytes, all of them inside a container or in rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    /// How many commas are directly inside, or how many newlines end a row.
    pub(crate) separators: u64,
    /// The state after the bytes.
    pub(crate) nesting: Nesting,
}

/// Validates a payload that arrives in pieces. The result does not depend on where it is cut.
///
/// A payload is valid if it is one JSON value, or several with one per line (NDJSON).
#[derive(Debug, Clone)]
pub struct Validator {
    isa: Isa,
    state: State,
    /// `None` if the payload is known to be UTF-8.
    text: Option<Utf8Validator>,
    /// How many bytes were checked: those before `tail`.
    checked: u64,
    /// The last bytes, too few for a block.
    tail: [u8; WIDTH],
    tail_len: usize,
    count: SeparatorCount,
}

impl Validator {
    /// Creates a validator.
    #[must_use]
    pub fn new(isa: Isa) -> Self {
        Self { text: Some(Utf8Validator::default()), ..Self::for_utf8(isa) }
    }

    /// Creates a validator for a payload that is known to be UTF-8.
    pub(crate) fn for_utf8(isa: Isa) -> Self {
        Self {
            isa,
            state: State::default(),
            text: None,
            checked: 0,
            tail: [0; WIDTH],
            tail_len: 0,
            count: SeparatorCount::default(),
        }
    }

    /// Feeds the next piece of the payload.
    ///
    /// # Errors
    /// `InvalidJson` with the first invalid byte.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let bad_text = self.text.as_mut().and_then(|text| text.feed(bytes));
        // The payload is invalid from the first byte that is not UTF-8. That byte, or one before it, may also
        // break the grammar; that error is reported then, wherever the payload is cut.
        let end = bad_text.as_ref().map_or(self.fed() + bytes.len() as u64, |error| error.index + 1);
        let new = usize::try_from(end.saturating_sub(self.fed())).unwrap_or(bytes.len());
        self.check(&bytes[..new])?;
        let Some(bad_text) = bad_text else { return Ok(()) };
        match self.check_tail(end) {
            Err(error) if error.index < end => Err(error),
            _ => Err(bad_text),
        }
    }

    /// Checks that the payload is complete.
    ///
    /// # Errors
    /// `InvalidJson` if it is not; at the payload's length if it ends too early.
    pub fn finish(mut self) -> Result<()> {
        let len = self.fed();
        let bad_text = self.text.as_ref().and_then(Utf8Validator::finish);
        let result = self.check_tail(len);
        match (result, bad_text) {
            (Err(error), Some(bad_text)) if error.index > bad_text.index => Err(bad_text),
            (Err(error), _) => Err(error),
            (Ok(()), Some(bad_text)) => Err(bad_text),
            (Ok(()), None) if self.state.is_complete() => Ok(()),
            (Ok(()), None) if self.state.is_empty() => Err(Error::json(len, "nothing but white space")),
            (Ok(()), None) => Err(Error::json(len, "unexpected end")),
        }
    }

    /// Begins to count the commas directly inside the container that is open at `depth`, or with 0 the newlines between
    /// rows. With `None` nothing is counted.
    pub(crate) fn begin_count(&mut self, depth: Option<u64>) {
        let (is_rows, open) = (self.state.is_rows, self.state.stack.depth);
        let is_countable = depth.is_some_and(|depth| depth <= open && (depth == 0) == is_rows);
        let is_exact = is_countable && self.tail_len == 0;
        self.count = SeparatorCount { depth: depth.unwrap_or_default(), separators: 0, is_exact };
    }

    /// Returns what was counted, if the container is still open, and every byte was counted.
    pub(crate) fn counted(&self) -> Option<Counted> {
        if !self.count.is_exact || self.tail_len > 0 {
            return None;
        }
        let (depth, is_object) = self.state.stack.nested(self.count.depth)?;
        let nesting = Nesting::within(self.state.strings, depth, is_object);
        Some(Counted { separators: self.count.separators, nesting })
    }

    /// Returns the state that this validator will have at `pos` if that is after a comma directly inside the container
    /// that is open at `depth` now, or at the start of a row if `depth` is 0. `None` if fewer containers are open.
    pub(crate) fn after_separator(&self, depth: u64, pos: u64) -> Option<Self> {
        let tail_len = (pos % WIDTH as u64) as usize;
        Some(Self {
            isa: self.isa,
            state: self.state.after_separator(depth)?,
            text: self.text.as_ref().map(|_| Utf8Validator::starting_at(pos)),
            checked: pos - tail_len as u64,
            // White space changes nothing there, so it stands for what comes before.
            tail: [b' '; WIDTH],
            tail_len,
            count: SeparatorCount::default(),
        })
    }

    /// Whether both give the same result for any further bytes. It may miss that they do.
    pub(crate) fn is_interchangeable(&self, other: &Self) -> bool {
        let Self { isa: _, state, text, checked, tail, tail_len, count: _ } = self;
        (state, text, checked) == (&other.state, &other.text, &other.checked)
            && tail[..*tail_len] == other.tail[..other.tail_len]
    }

    fn fed(&self) -> u64 {
        self.checked + self.tail_len as u64
    }

    fn check(&mut self, mut bytes: &[u8]) -> Result<()> {
        if self.tail_len > 0 {
            let missing = bytes.len().min(WIDTH - self.tail_len);
            let (head, rest) = bytes.split_at(missing);
            self.tail[self.tail_len..][..missing].copy_from_slice(head);
            self.tail_len += missing;
            bytes = rest;
            if self.tail_len < WIDTH {
                return Ok(());
            }
            let block = self.tail;
            self.tail_len = 0;
            self.blocks(&block)?;
        }
        self.blocks(bytes)?;
        let (_, rest) = bytes.as_chunks::<WIDTH>();
        self.tail[..rest.len()].copy_from_slice(rest);
        self.tail_len = rest.len();
        Ok(())
    }

    /// Checks the remaining bytes before `end`, as if the payload ended there.
    fn check_tail(&mut self, end: u64) -> Result<()> {
        let len = usize::try_from(end.saturating_sub(self.checked)).unwrap_or_default().min(self.tail_len);
        let mut block = [b' '; WIDTH];
        block[..len].copy_from_slice(&self.tail[..len]);
        match self.blocks(&block) {
            // An error in the padding means that the payload ends too early.
            Err(error) if error.index >= end => Err(Error::json(end, "unexpected end")),
            result => result,
        }
    }

    /// Checks the whole blocks of `bytes`.
    fn blocks(&mut self, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        let is_packed = self.isa.has_compress() && bytes.len() >= MIN_PACKED_BYTES;
        let mut buffers = is_packed.then(Buffers::new);
        loop {
            let (state, count) = (&mut self.state, &mut self.count);
            let valid = match &mut buffers {
                Some(buffers) => self.isa.run(PackedQuick { state, bytes: rest, count, buffers }),
                None => self.isa.run(Quick { state, bytes: rest, count }),
            } * WIDTH;
            self.checked += valid as u64;
            let Some((block, others)) = rest[valid..].split_first_chunk() else { return Ok(()) };
            self.count.is_exact = false;
            let bad = self.isa.run(Exact { state: &mut self.state, block });
            if bad.any() != 0 {
                let index = self.checked + u64::from(bad.any().trailing_zeros());
                return Err(Error::json_or_bom(block, index, bad.reason()));
            }
            self.checked += WIDTH as u64;
            rest = others;
        }
    }
}

struct Exact<'a> {
    state: &'a mut State,
    block: &'a [u8; WIDTH],
}

impl Kernel for Exact<'_> {
    type Output = Violations;

    #[inline(always)]
    fn run<B: Block>(self) -> Violations {
        self.state.check_exact::<B>(self.block)
    }
}

#[cfg(test)]
mod tests;
