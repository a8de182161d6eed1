//! Token reader for a message that arrives in pieces. Skips values in 64-byte blocks.

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

    pub(super) fn fail(&self, reason: &'static str) -> Error {
        Error::json(self.pos, reason)
    }

    /// Returns the next byte that is not white space, without taking it; `None` at the end.
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

    /// Returns the next byte that is not white space, without taking it.
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

    /// Takes the next string, quotes included. Appends its first `limit` bytes to `out`, and one more if it
    /// is longer.
    pub(super) fn take_string(&mut self, out: &mut Vec<u8>, limit: usize) -> Result<Range<u64>> {
        let (start, isa) = (self.pos, self.isa);
        let (mut is_open, mut is_escaped) = (false, false);
        let is_closed = self.take_until(out, limit, |piece| {
            let quote = usize::from(!is_open);
            is_open = true;
            string_end(isa, &piece[quote..], &mut is_escaped).map(|end| quote + end + 1)
        })?;
        if is_closed { Ok(start..self.pos) } else { Err(self.fail("unexpected end")) }
    }

    /// Takes a number or literal, or whatever is in its place. Appends to `out` like [`Scanner::take_string`].
    pub(super) fn take_scalar(&mut self, out: &mut Vec<u8>, limit: usize) -> Result<Range<u64>> {
        let start = self.pos;
        // A top-level number ends with the message.
        self.take_until(out, limit, |piece| piece.iter().position(|byte| ends_scalar(*byte)))?;
        Ok(start..self.pos)
    }

    /// Skips the rest of a container, closing bracket included.
    pub(super) fn skip_rest(&mut self) -> Result<()> {
        let (mut nesting, isa) = (Nesting::inside(), self.isa);
        let is_closed = self.take_until(&mut Vec::new(), 0, |piece| {
            let progress = nesting.close(isa, piece);
            (progress.stop == Stop::Closed).then_some(progress.consumed)
        })?;
        if is_closed { Ok(()) } else { Err(self.fail("unexpected end")) }
    }

    /// Skips any value.
    pub(super) fn skip(&mut self) -> Result<Range<u64>> {
        let first = self.peek()?;
        let start = self.pos;
        match first {
            b'{' | b'[' => {
                self.take(1);
                self.skip_rest()?;
            }
            b'"' => {
                self.take_string(&mut Vec::new(), 0)?;
            }
            _ => {
                self.take_scalar(&mut Vec::new(), 0)?;
                if self.pos == start {
                    return Err(self.fail("expected a value"));
                }
            }
        }
        Ok(start..self.pos)
    }

    /// Fails if anything but white space is left.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self.peek_or_end()? {
            None => Ok(()),
            Some(_) => Err(self.fail("expected nothing more")),
        }
    }

    /// Takes pieces until `find_end` returns where to stop in one; `false` if the message ends first.
    fn take_until(
        &mut self,
        out: &mut Vec<u8>,
        limit: usize,
        mut find_end: impl FnMut(&[u8]) -> Option<usize>,
    ) -> Result<bool> {
        loop {
            let piece = self.reader.fill_buf().map_err(|error| Error::unreadable(&error))?;
            if piece.is_empty() {
                return Ok(false);
            }
            let found = find_end(piece);
            let consumed = found.unwrap_or(piece.len());
            let room = (limit + 1).saturating_sub(out.len());
            out.extend_from_slice(&piece[..consumed.min(room)]);
            self.take(consumed);
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

/// Returns the closing quote of a string whose content continues with `piece`. `is_escaped` says whether the
/// first byte of `piece` is escaped, and is updated for the byte after it.
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
    // A string with one escape usually has more, and a `memchr` call for each would cost more than scanning
    // blocks.
    let end = closing_quote(isa, &content[found..]).map(|end| first + found + end);
    if end.is_none() {
        *is_escaped = content.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1;
    }
    end
}
