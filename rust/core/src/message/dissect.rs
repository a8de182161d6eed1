//! Splits a message into a small skeleton and the spans of its holes.

use std::io::BufRead;
use std::ops::Range;

use super::scanner::Scanner;
use crate::error::{Error, Result};
use crate::reader::{check_string, is_number};
use crate::scan::Isa;

/// Bytes of a scalar that are read. Longer numbers are never exact.
const MAX_SCALAR_BYTES: usize = 64;

/// What may stay in a skeleton.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a string in bytes, quotes included.
    pub max_string_bytes: usize,
    /// Maximum size of a container in bytes, as written in the skeleton.
    pub max_container_bytes: usize,
    /// Maximum number of containers around a value.
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_string_bytes: 1024, max_container_bytes: 8192, max_depth: 64 }
    }
}

/// A message split into its skeleton and its holes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dissection {
    /// The message as JSON without white space, in which hole `n` is the string `token:n`.
    pub skeleton: Vec<u8>,
    /// The span of each hole, in order.
    pub holes: Vec<Range<u64>>,
}

/// Splits a message into a skeleton and holes.
///
/// A hole is a value that exceeds the [`Limits`], a number that would change if it were parsed and written
/// again, or a string that is not text: invalid UTF-8, a lone surrogate, a control character or an unknown
/// escape. An object with such a key becomes a hole as a whole. Inside a hole nothing is validated except
/// that its brackets and quotes are closed.
///
/// `token` must not need escaping in JSON, and must be unpredictable for the author of the message.
pub fn dissect(message: impl BufRead, token: &str, limits: Limits) -> Result<Dissection> {
    let mut dissector = Dissector {
        scanner: Scanner::new(message, Isa::detect()),
        token,
        limits,
        skeleton: Vec::new(),
        holes: Vec::new(),
        open: Vec::new(),
        buffer: Vec::new(),
    };
    dissector.run()?;
    Ok(Dissection { skeleton: dissector.skeleton, holes: dissector.holes })
}

struct Dissector<'a, R> {
    scanner: Scanner<R>,
    token: &'a str,
    limits: Limits,
    skeleton: Vec<u8>,
    holes: Vec<Range<u64>>,
    /// The open containers around the next value, the innermost last.
    open: Vec<Container>,
    /// The current string or scalar.
    buffer: Vec<u8>,
}

/// An open container: where it starts, and the lengths of the skeleton and of the holes before it.
struct Container {
    is_object: bool,
    start: u64,
    skeleton_len: usize,
    holes_len: usize,
}

/// What to read next.
enum Next {
    Value,
    /// What follows an opening bracket.
    AfterOpening,
    /// What follows a value.
    AfterValue,
}

impl<R: BufRead> Dissector<'_, R> {
    fn run(&mut self) -> Result<()> {
        let mut next = Next::Value;
        loop {
            next = match next {
                Next::Value => self.read_value()?,
                Next::AfterOpening => self.read_after_opening()?,
                Next::AfterValue if self.open.is_empty() => return self.scanner.finish(),
                Next::AfterValue => self.read_after_value()?,
            };
        }
    }

    fn read_value(&mut self) -> Result<Next> {
        let first = self.scanner.peek()?;
        match first {
            b'{' | b'[' if self.open.len() >= self.limits.max_depth => {
                let span = self.scanner.skip()?;
                self.push_hole(span);
            }
            b'{' | b'[' => {
                self.open.push(Container {
                    is_object: first == b'{',
                    start: self.scanner.pos(),
                    skeleton_len: self.skeleton.len(),
                    holes_len: self.holes.len(),
                });
                self.scanner.take(1);
                self.skeleton.push(first);
                return Ok(Next::AfterOpening);
            }
            b'"' => {
                let span = self.read_string()?;
                if self.fits_skeleton() {
                    self.skeleton.append(&mut self.buffer)
                } else {
                    self.push_hole(span)
                }
            }
            _ => self.read_scalar()?,
        }
        self.collapse_oversized()?;
        Ok(Next::AfterValue)
    }

    fn read_after_opening(&mut self) -> Result<Next> {
        if self.take_closing()? { self.close() } else { self.read_key() }
    }

    fn read_after_value(&mut self) -> Result<Next> {
        if self.take_closing()? {
            return self.close();
        }
        if !self.scanner.take_if(b',')? {
            return Err(self.scanner.fail("expected a comma or the end of what is open"));
        }
        self.skeleton.push(b',');
        self.read_key()
    }

    /// Takes the next key and its colon, if the innermost container is an object.
    fn read_key(&mut self) -> Result<Next> {
        if !self.open.last().is_some_and(|container| container.is_object) {
            return Ok(Next::Value);
        }
        if self.scanner.peek()? != b'"' {
            return Err(self.scanner.fail("expected a key"));
        }
        self.read_string()?;
        if !self.fits_skeleton() {
            self.collapse_innermost()?;
            self.collapse_oversized()?;
            return Ok(Next::AfterValue);
        }
        self.skeleton.append(&mut self.buffer);
        if !self.scanner.take_if(b':')? {
            return Err(self.scanner.fail("expected a colon"));
        }
        self.skeleton.push(b':');
        Ok(Next::Value)
    }

    fn read_string(&mut self) -> Result<Range<u64>> {
        self.buffer.clear();
        self.scanner.take_string(&mut self.buffer, self.limits.max_string_bytes)
    }

    /// Whether the current string is short enough, and text.
    fn fits_skeleton(&self) -> bool {
        let content = 1..self.buffer.len().saturating_sub(1);
        self.buffer.len() <= self.limits.max_string_bytes
            && check_string(&self.buffer, content).is_ok()
            && !has_lone_surrogate(&self.buffer)
    }

    fn read_scalar(&mut self) -> Result<()> {
        self.buffer.clear();
        let span = self.scanner.take_scalar(&mut self.buffer, MAX_SCALAR_BYTES)?;
        let is_word = matches!(self.buffer.as_slice(), b"true" | b"false" | b"null");
        // Only the start of a long number was read.
        let is_long = self.buffer.len() > MAX_SCALAR_BYTES && matches!(self.buffer[0], b'-' | b'0'..=b'9');
        if is_word || is_exact(&self.buffer) {
            self.skeleton.append(&mut self.buffer);
        } else if is_long || is_number(&self.buffer) {
            self.push_hole(span);
        } else {
            return Err(Error::json(span.start, "expected a value"));
        }
        Ok(())
    }

    /// Takes the closing bracket of the innermost container, if it is next.
    fn take_closing(&mut self) -> Result<bool> {
        let is_object = self.open.last().is_some_and(|container| container.is_object);
        self.scanner.take_if(if is_object { b'}' } else { b']' })
    }

    fn close(&mut self) -> Result<Next> {
        if let Some(container) = self.open.pop() {
            self.skeleton.push(if container.is_object { b'}' } else { b']' });
            if self.skeleton.len() - container.skeleton_len > self.limits.max_container_bytes {
                self.replace_with_hole(&container);
            }
        }
        self.collapse_oversized()?;
        Ok(Next::AfterValue)
    }

    /// Makes holes of the containers that have become too large, the innermost first: often that is enough
    /// for the others.
    fn collapse_oversized(&mut self) -> Result<()> {
        while let Some(container) = self.open.last()
            && self.skeleton.len() - container.skeleton_len > self.limits.max_container_bytes
        {
            self.collapse_innermost()?;
        }
        Ok(())
    }

    /// Makes a hole of the innermost container, including what is still to be read of it.
    fn collapse_innermost(&mut self) -> Result<()> {
        self.scanner.skip_rest()?;
        if let Some(container) = self.open.pop() {
            self.replace_with_hole(&container);
        }
        Ok(())
    }

    fn replace_with_hole(&mut self, container: &Container) {
        self.skeleton.truncate(container.skeleton_len);
        self.holes.truncate(container.holes_len);
        self.push_hole(container.start..self.scanner.pos());
    }

    fn push_hole(&mut self, span: Range<u64>) {
        self.skeleton.extend_from_slice(format!("\"{}:{}\"", self.token, self.holes.len()).as_bytes());
        self.holes.push(span);
    }
}

/// Whether a string has an escaped surrogate without the other half of its pair. Its escapes must be valid.
fn has_lone_surrogate(string: &[u8]) -> bool {
    let mut rest = string;
    while let Some(found) = memchr::memchr(b'\\', rest) {
        rest = &rest[found..];
        let consumed = match (surrogate(rest), rest.get(ESCAPE_LEN..).and_then(surrogate)) {
            (None, _) => 2,
            (Some(Surrogate::High), Some(Surrogate::Low)) => 2 * ESCAPE_LEN,
            _ => return true,
        };
        rest = &rest[consumed..];
    }
    false
}

/// Length of `\ud83d`.
const ESCAPE_LEN: usize = 6;

enum Surrogate {
    High,
    Low,
}

/// Returns which half of a surrogate pair an escape is, if any.
fn surrogate(escape: &[u8]) -> Option<Surrogate> {
    match escape {
        [b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..] => Some(Surrogate::High),
        [b'\\', b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..] => Some(Surrogate::Low),
        _ => None,
    }
}

/// Whether a number stays the same when it is parsed into 64 bits and written again.
///
/// A float of up to 15 digits is exact. Very small floats and those with trailing zeros may be written
/// differently.
fn is_exact(number: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(number) else { return false };
    if !is_number(number) || text.contains(['e', 'E']) {
        return false;
    }
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let Some((whole, fraction)) = unsigned.split_once('.') else {
        return text != "-0" && (text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok());
    };
    let digits = format!("{whole}{fraction}");
    digits.trim_start_matches('0').len() <= 15
        && (fraction == "0" || !fraction.ends_with('0'))
        && !fraction.starts_with("0000")
}

#[cfg(test)]
#[path = "dissect_tests.rs"]
mod tests;
