//! Is it JSON? RFC 8259, and NDJSON, checked 64 bytes at a time.
//!
//! Every rule is a mask of the bytes that break it, so an error's position is the lowest bit of all of them:
//! the first byte with which what came before cannot go on to be valid.

mod block;
#[cfg(test)]
mod naive;
mod number;
mod quick;
mod stack;
mod text;

use crate::error::{Error, Result};
use crate::scan::{Block, Isa, Kernel, WIDTH};
use block::{Bad, State};
pub(crate) use text::Text;

/// Checks a payload that arrives in pieces. Every way of cutting it gives the same answer.
///
/// Valid is one JSON value, or several of them, each on a line of its own (NDJSON).
#[derive(Debug, Clone)]
pub struct Validator {
    isa: Isa,
    state: State,
    /// `None` where it is known to be text.
    text: Option<Text>,
    /// How many bytes were checked: those before `tail`.
    checked: u64,
    /// The last bytes that were fed, too few for a block.
    tail: [u8; WIDTH],
    tail_len: usize,
}

impl Validator {
    /// Nothing fed yet.
    #[must_use]
    pub fn new(isa: Isa) -> Self {
        Self { text: Some(Text::default()), ..Self::of_text(isa) }
    }

    /// Nothing fed yet, and whoever feeds sees to it that it is UTF-8.
    pub(crate) fn of_text(isa: Isa) -> Self {
        Self { isa, state: State::default(), text: None, checked: 0, tail: [0; WIDTH], tail_len: 0 }
    }

    /// Takes the next piece of the payload.
    ///
    /// # Errors
    /// `InvalidJson` with the first byte that cannot be right.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let bad_text = self.text.as_mut().and_then(|text| text.feed(bytes));
        // A byte that is not text ends what can be right; but it may stand where no text could, or something
        // before it may be wrong, and that is said however the payload was cut.
        let end = bad_text.as_ref().map_or(self.fed() + bytes.len() as u64, |error| error.index + 1);
        let new = usize::try_from(end.saturating_sub(self.fed())).unwrap_or(bytes.len());
        self.check(&bytes[..new])?;
        let Some(bad_text) = bad_text else { return Ok(()) };
        match self.check_tail(end) {
            Err(error) if error.index < end => Err(error),
            _ => Err(bad_text),
        }
    }

    /// Whether all that was fed is a whole payload.
    ///
    /// # Errors
    /// `InvalidJson` if it is not; the byte is the payload's length if it ends too early.
    pub fn finish(mut self) -> Result<()> {
        let len = self.fed();
        let bad_text = self.text.as_ref().and_then(Text::finish);
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

    fn fed(&self) -> u64 {
        self.checked + self.tail_len as u64
    }

    fn check(&mut self, mut bytes: &[u8]) -> Result<()> {
        if self.tail_len > 0 {
            let taken = bytes.len().min(WIDTH - self.tail_len);
            let (head, rest) = bytes.split_at(taken);
            self.tail[self.tail_len..][..taken].copy_from_slice(head);
            self.tail_len += taken;
            bytes = rest;
            if self.tail_len < WIDTH {
                return Ok(());
            }
            let block = self.tail;
            self.tail_len = 0;
            self.blocks(&[block])?;
        }
        let (blocks, rest) = bytes.as_chunks::<WIDTH>();
        self.blocks(blocks)?;
        self.tail[..rest.len()].copy_from_slice(rest);
        self.tail_len = rest.len();
        Ok(())
    }

    /// Checks what is left before byte `end`, where the payload ends or may as well.
    fn check_tail(&mut self, end: u64) -> Result<()> {
        let len = usize::try_from(end.saturating_sub(self.checked)).unwrap_or_default().min(self.tail_len);
        let mut block = [b' '; WIDTH];
        block[..len].copy_from_slice(&self.tail[..len]);
        match self.blocks(&[block]) {
            // What only the padding breaks, the end does.
            Err(error) if error.index >= end => Err(Error::json(end, "unexpected end")),
            result => result,
        }
    }

    fn blocks(&mut self, blocks: &[[u8; WIDTH]]) -> Result<()> {
        let mut rest = blocks;
        loop {
            let fine = self.isa.run(Quick { state: &mut self.state, blocks: rest });
            self.checked += (fine * WIDTH) as u64;
            let Some((block, behind)) = rest[fine..].split_first() else { return Ok(()) };
            let bad = self.isa.run(Exact { state: &mut self.state, block });
            if bad.any() != 0 {
                let index = self.checked + u64::from(bad.any().trailing_zeros());
                return Err(Error::json_or_mark(block, index, bad.why()));
            }
            self.checked += WIDTH as u64;
            rest = behind;
        }
    }
}

/// How many blocks are fine at the first look.
struct Quick<'a> {
    state: &'a mut State,
    blocks: &'a [[u8; WIDTH]],
}

impl Kernel for Quick<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<B: Block>(self) -> usize {
        // A loop, not `position`: a closure is compiled by itself, without the instructions.
        for (i, bytes) in self.blocks.iter().enumerate() {
            if !self.state.quick::<B>(bytes) {
                return i;
            }
        }
        self.blocks.len()
    }
}

struct Exact<'a> {
    state: &'a mut State,
    block: &'a [u8; WIDTH],
}

impl Kernel for Exact<'_> {
    type Output = Bad;

    #[inline(always)]
    fn run<B: Block>(self) -> Bad {
        self.state.block::<B>(self.block)
    }
}

#[cfg(test)]
mod tests;
