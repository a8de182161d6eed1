//! Reads a message that comes in pieces, a token at a time; passes over what nobody looks at in 64-byte blocks.

use std::io::BufRead;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::scan::nesting::{Nesting, Stop};
use crate::scan::{Isa, closing_quote};

pub(super) struct Scanner<R> {
    reader: R,
    pos: u64,
    isa: Isa,
}

impl<R: BufRead> Scanner<R> {
    pub(super) fn new(reader: R, isa: Isa) -> Self {
        Self { reader, pos: 0, isa }
    }

    pub(super) fn pos(&self) -> u64 {
        self.pos
    }

    pub(super) fn fail(&self, why: &'static str) -> Error {
        Error::json(self.pos, why)
    }

    /// The next byte that is not white space, not taken; `None` at the end.
    pub(super) fn peek_or_end(&mut self) -> Result<Option<u8>> {
        loop {
            let piece = self.reader.fill_buf().map_err(|error| Error::unreadable(&error))?;
            if piece.is_empty() {
                return Ok(None);
            }
            let white = piece.iter().take_while(|byte| is_white(**byte)).count();
            let found = piece.get(white).copied();
            self.take(white);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// The next byte that is not white space, not taken.
    pub(super) fn peek(&mut self) -> Result<u8> {
        self.peek_or_end()?.ok_or_else(|| self.fail("unexpected end"))
    }

    /// Takes `byte` if it is next.
    pub(super) fn take_if(&mut self, byte: u8) -> Result<bool> {
        let is_next = self.peek()? == byte;
        self.take(usize::from(is_next));
        Ok(is_next)
    }

    pub(super) fn take(&mut self, count: usize) {
        self.reader.consume(count);
        self.pos += count as u64;
    }

    /// Takes a string that is next, quotes included. Its first `most` bytes go to `kept`, and one more if it has more.
    pub(super) fn string(&mut self, kept: &mut Vec<u8>, most: usize) -> Result<Range<u64>> {
        let (start, isa) = (self.pos, self.isa);
        let (mut is_open, mut is_escaped) = (false, false);
        let is_closed = self.pass(kept, most, |piece| {
            let quote = usize::from(!is_open);
            is_open = true;
            string_end(isa, &piece[quote..], &mut is_escaped).map(|end| quote + end + 1)
        })?;
        if is_closed { Ok(start..self.pos) } else { Err(self.fail("unexpected end")) }
    }

    /// Takes a number, `true`, `false`, `null`, or whatever stands in such a one's place.
    pub(super) fn scalar(&mut self, kept: &mut Vec<u8>, most: usize) -> Result<Range<u64>> {
        let start = self.pos;
        // At the top a number ends with the message.
        self.pass(kept, most, |piece| piece.iter().position(|byte| ends_scalar(*byte)))?;
        Ok(start..self.pos)
    }

    /// Passes over all that is left of a container, closing bracket included.
    pub(super) fn skip_rest(&mut self) -> Result<()> {
        let (mut nesting, isa) = (Nesting::inside(), self.isa);
        let is_closed = self.pass(&mut Vec::new(), 0, |piece| {
            let passed = nesting.close(isa, piece);
            (passed.stop == Stop::Closed).then_some(passed.consumed)
        })?;
        if is_closed { Ok(()) } else { Err(self.fail("unexpected end")) }
    }

    /// Passes over any value.
    pub(super) fn skip(&mut self) -> Result<Range<u64>> {
        let first = self.peek()?;
        let start = self.pos;
        match first {
            b'{' | b'[' => {
                self.take(1);
                self.skip_rest()?;
            }
            b'"' => {
                self.string(&mut Vec::new(), 0)?;
            }
            _ => {
                self.scalar(&mut Vec::new(), 0)?;
                if self.pos == start {
                    return Err(self.fail("expected a value"));
                }
            }
        }
        Ok(start..self.pos)
    }

    /// Fails where anything but white space is left.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self.peek_or_end()? {
            None => Ok(()),
            Some(_) => Err(self.fail("expected nothing more")),
        }
    }

    /// Takes piece after piece, until `end` knows how much of one is the last to be taken; `false` if it never did.
    fn pass(
        &mut self,
        kept: &mut Vec<u8>,
        most: usize,
        mut end: impl FnMut(&[u8]) -> Option<usize>,
    ) -> Result<bool> {
        loop {
            let piece = self.reader.fill_buf().map_err(|error| Error::unreadable(&error))?;
            if piece.is_empty() {
                return Ok(false);
            }
            let found = end(piece);
            let taken = found.unwrap_or(piece.len());
            let room = (most + 1).saturating_sub(kept.len());
            kept.extend_from_slice(&piece[..taken.min(room)]);
            self.take(taken);
            if found.is_some() {
                return Ok(true);
            }
        }
    }
}

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn ends_scalar(byte: u8) -> bool {
    is_white(byte) || matches!(byte, b',' | b':' | b'"' | b'[' | b']' | b'{' | b'}')
}

/// The closing quote of a string whose content goes on with `piece`; `is_escaped` says of its first byte whether it
/// is, and is told the same of the byte behind it.
pub(super) fn string_end(isa: Isa, piece: &[u8], is_escaped: &mut bool) -> Option<usize> {
    let first = usize::from(*is_escaped && !piece.is_empty());
    if first == 1 {
        *is_escaped = false;
    }
    let content = &piece[first..];
    let found = memchr::memchr2(b'"', b'\\', content)?;
    if content[found] == b'"' {
        return Some(first + found);
    }
    // Where one escape is there are more, and a call for each would cost more than the bytes between.
    let end = closing_quote(isa, &content[found..]).map(|end| first + found + end);
    if end.is_none() {
        *is_escaped = content.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1;
    }
    end
}
