//! A message as a small skeleton, and where its holes are.

use std::io::BufRead;
use std::ops::Range;

use super::scanner::Scanner;
use crate::error::{Error, Result};
use crate::reader::{check_string, is_number};
use crate::scan::Isa;

/// No number that is longer is exact.
const MOST_SCALAR: usize = 64;

/// What stays in a skeleton.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The bytes of the longest string, quotes included.
    pub most_string: usize,
    /// The bytes of the largest container, as it stands in the skeleton.
    pub most_container: usize,
    /// How many containers may stand around a value.
    pub most_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { most_string: 1024, most_container: 8192, most_depth: 64 }
    }
}

/// What a message comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dissected {
    /// The message as JSON without white space, in which hole `n` is the string `token:n`.
    pub skeleton: Vec<u8>,
    /// The bytes of each hole, in their order.
    pub holes: Vec<Range<u64>>,
}

/// Takes a message apart.
///
/// A hole is what exceeds the [`Limits`]; a number that is not the same once it was read and written again; and a
/// string that is no text: not UTF-8, with half of a surrogate pair, a control character or an escape that JSON does not know.
/// An object with such a key is one as a whole. Nothing inside of a hole is checked, but that its brackets and quotes
/// come to an end.
///
/// `token` must be nothing that JSON escapes, and nothing that whoever wrote the message can know.
pub fn dissect(message: impl BufRead, token: &str, limits: Limits) -> Result<Dissected> {
    let mut dissection = Dissection {
        scanner: Scanner::new(message, Isa::detect()),
        token,
        limits,
        skeleton: Vec::new(),
        holes: Vec::new(),
        open: Vec::new(),
        kept: Vec::new(),
    };
    dissection.run()?;
    Ok(Dissected { skeleton: dissection.skeleton, holes: dissection.holes })
}

struct Dissection<'a, R> {
    scanner: Scanner<R>,
    token: &'a str,
    limits: Limits,
    skeleton: Vec<u8>,
    holes: Vec<Range<u64>>,
    /// The containers that the next value is inside of, the innermost last.
    open: Vec<Container>,
    /// The token at hand.
    kept: Vec<u8>,
}

/// A container that was begun: where, and what there was before it.
struct Container {
    is_object: bool,
    start: u64,
    skeleton: usize,
    holes: usize,
}

/// What comes next.
enum Next {
    Value,
    /// A container was opened.
    First,
    /// A value was taken.
    Behind,
}

impl<R: BufRead> Dissection<'_, R> {
    fn run(&mut self) -> Result<()> {
        let mut next = Next::Value;
        loop {
            next = match next {
                Next::Value => self.value()?,
                Next::First => self.first()?,
                Next::Behind if self.open.is_empty() => return self.scanner.finish(),
                Next::Behind => self.behind()?,
            };
        }
    }

    fn value(&mut self) -> Result<Next> {
        let first = self.scanner.peek()?;
        match first {
            b'{' | b'[' if self.open.len() >= self.limits.most_depth => {
                let span = self.scanner.skip()?;
                self.hole(span);
            }
            b'{' | b'[' => {
                self.open.push(Container {
                    is_object: first == b'{',
                    start: self.scanner.pos(),
                    skeleton: self.skeleton.len(),
                    holes: self.holes.len(),
                });
                self.scanner.take(1);
                self.skeleton.push(first);
                return Ok(Next::First);
            }
            b'"' => {
                let span = self.string()?;
                if self.is_shown() { self.skeleton.append(&mut self.kept) } else { self.hole(span) }
            }
            _ => self.scalar()?,
        }
        self.settle()?;
        Ok(Next::Behind)
    }

    fn first(&mut self) -> Result<Next> {
        if self.closes()? { self.close() } else { self.member() }
    }

    fn behind(&mut self) -> Result<Next> {
        if self.closes()? {
            return self.close();
        }
        if !self.scanner.take_if(b',')? {
            return Err(self.scanner.fail("expected a comma or the end of what is open"));
        }
        self.skeleton.push(b',');
        self.member()
    }

    /// Takes the next key and its colon, where there are keys.
    fn member(&mut self) -> Result<Next> {
        if !self.open.last().is_some_and(|container| container.is_object) {
            return Ok(Next::Value);
        }
        if self.scanner.peek()? != b'"' {
            return Err(self.scanner.fail("expected a key"));
        }
        self.string()?;
        if !self.is_shown() {
            self.give_up()?;
            self.settle()?;
            return Ok(Next::Behind);
        }
        self.skeleton.append(&mut self.kept);
        if !self.scanner.take_if(b':')? {
            return Err(self.scanner.fail("expected a colon"));
        }
        self.skeleton.push(b':');
        Ok(Next::Value)
    }

    fn string(&mut self) -> Result<Range<u64>> {
        self.kept.clear();
        self.scanner.string(&mut self.kept, self.limits.most_string)
    }

    /// Whether the string at hand is short, and text.
    fn is_shown(&self) -> bool {
        let content = 1..self.kept.len().saturating_sub(1);
        self.kept.len() <= self.limits.most_string
            && check_string(&self.kept, content).is_ok()
            && !has_half_a_pair(&self.kept)
    }

    fn scalar(&mut self) -> Result<()> {
        self.kept.clear();
        let span = self.scanner.scalar(&mut self.kept, MOST_SCALAR)?;
        let is_word = matches!(self.kept.as_slice(), b"true" | b"false" | b"null");
        // Of a number that goes on and on only the start is looked at.
        let is_long = self.kept.len() > MOST_SCALAR && matches!(self.kept[0], b'-' | b'0'..=b'9');
        if is_word || is_exact(&self.kept) {
            self.skeleton.append(&mut self.kept);
        } else if is_long || is_number(&self.kept) {
            self.hole(span);
        } else {
            return Err(Error::json(span.start, "expected a value"));
        }
        Ok(())
    }

    /// Whether the innermost container ends here; its bracket is taken.
    fn closes(&mut self) -> Result<bool> {
        let is_object = self.open.last().is_some_and(|container| container.is_object);
        self.scanner.take_if(if is_object { b'}' } else { b']' })
    }

    fn close(&mut self) -> Result<Next> {
        if let Some(container) = self.open.pop() {
            self.skeleton.push(if container.is_object { b'}' } else { b']' });
            if self.skeleton.len() - container.skeleton > self.limits.most_container {
                self.replace(&container);
            }
        }
        self.settle()?;
        Ok(Next::Behind)
    }

    /// Makes holes of the containers that have become too large, the innermost first: often the others then have not.
    fn settle(&mut self) -> Result<()> {
        while let Some(container) = self.open.last()
            && self.skeleton.len() - container.skeleton > self.limits.most_container
        {
            self.give_up()?;
        }
        Ok(())
    }

    /// Makes a hole of the innermost container, whatever is still to come of it.
    fn give_up(&mut self) -> Result<()> {
        self.scanner.skip_rest()?;
        if let Some(container) = self.open.pop() {
            self.replace(&container);
        }
        Ok(())
    }

    fn replace(&mut self, container: &Container) {
        self.skeleton.truncate(container.skeleton);
        self.holes.truncate(container.holes);
        self.hole(container.start..self.scanner.pos());
    }

    fn hole(&mut self, span: Range<u64>) {
        self.skeleton.extend_from_slice(format!("\"{}:{}\"", self.token, self.holes.len()).as_bytes());
        self.holes.push(span);
    }
}

/// Whether a string whose escapes are whole has one of a surrogate without the other half of its pair.
fn has_half_a_pair(string: &[u8]) -> bool {
    let mut rest = string;
    while let Some(found) = memchr::memchr(b'\\', rest) {
        rest = &rest[found..];
        let taken = match (surrogate(rest), rest.get(ESCAPE..).and_then(surrogate)) {
            (None, _) => 2,
            (Some(Half::First), Some(Half::Second)) => 2 * ESCAPE,
            _ => return true,
        };
        rest = &rest[taken..];
    }
    false
}

/// The bytes of `\ud83d`.
const ESCAPE: usize = 6;

enum Half {
    First,
    Second,
}

/// What an escape is half of, if it is.
fn surrogate(escape: &[u8]) -> Option<Half> {
    match escape {
        [b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..] => Some(Half::First),
        [b'\\', b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..] => Some(Half::Second),
        _ => None,
    }
}

/// Whether a number is written the same again once it was read into 64 bits.
///
/// With 15 digits a float is exact. Very small ones, and those that end in zeros, may be written in another way.
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
