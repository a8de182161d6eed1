//! What a JSON string stands for.

use crate::scan::{Block, Isa, Kernel, Strings, WIDTH};

/// What the content of a JSON string, without its quotes, stands for.
///
/// Half of a surrogate pair becomes the three bytes that UTF-8 would have for it, if it had. What is no escape that
/// JSON knows stays as it is.
#[must_use]
pub fn unescape(content: &[u8]) -> Vec<u8> {
    let mut out = vec![0; content.len()];
    let (_, written) = Isa::detect().run(Pass::new(content, &mut out, true));
    out.truncate(written);
    out
}

/// [`unescape`] for content that comes in pieces, cut anywhere.
#[derive(Debug, Clone)]
pub struct Unescaper {
    /// An escape whose end has not come.
    begun: Vec<u8>,
    isa: Isa,
}

impl Default for Unescaper {
    fn default() -> Self {
        Self { begun: Vec::new(), isa: Isa::detect() }
    }
}

impl Unescaper {
    /// Appends what is known by the next piece.
    pub fn push(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        while !self.begun.is_empty()
            && let Some((&next, rest)) = piece.split_first()
        {
            self.begun.push(next);
            piece = rest;
            self.go_on(out, false);
        }
        // Most strings are short and have none.
        if memchr::memchr(b'\\', piece).is_none() {
            return out.extend_from_slice(piece);
        }
        let taken = append(self.isa, piece, out, false);
        self.begun.extend_from_slice(&piece[taken..]);
    }

    /// Appends what is left: an escape that was cut short. Then the next string may begin.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.go_on(out, true);
    }

    fn go_on(&mut self, out: &mut Vec<u8>, is_last: bool) {
        let taken = append(self.isa, &self.begun, out, is_last);
        self.begun.drain(..taken);
    }
}

/// Appends what `content` stands for; how much of it was taken.
fn append(isa: Isa, content: &[u8], out: &mut Vec<u8>, is_last: bool) -> usize {
    let before = out.len();
    out.resize(before + content.len(), 0);
    let (taken, written) = isa.run(Pass::new(content, &mut out[before..], is_last));
    out.truncate(before + written);
    taken
}

/// What follows a backslash.
enum Escape {
    /// So many bytes stand for this character, or half of a surrogate pair.
    Of(usize, u32),
    /// The backslash is only that.
    No,
    /// More has to come before that is known.
    Begun,
}

struct Pass<'a> {
    content: &'a [u8],
    /// As long as the content: nothing becomes longer.
    out: &'a mut [u8],
    is_last: bool,
    taken: usize,
    written: usize,
}

impl<'a> Pass<'a> {
    fn new(content: &'a [u8], out: &'a mut [u8], is_last: bool) -> Self {
        Self { content, out, is_last, taken: 0, written: 0 }
    }
}

impl Kernel for Pass<'_> {
    type Output = (usize, usize);

    #[inline(always)]
    fn run<B: Block>(mut self) -> (usize, usize) {
        let (blocks, _) = self.content.as_chunks::<WIDTH>();
        let mut strings = Strings::default();
        for (number, block) in blocks.iter().enumerate() {
            let start = number * WIDTH;
            let backslashes = B::load(block).eq(b'\\');
            let mut escapes = backslashes & !strings.escaped(backslashes);
            while escapes != 0 {
                let at = start + escapes.trailing_zeros() as usize;
                escapes &= escapes - 1;
                // The second half of a pair was taken with the first.
                if at >= self.taken {
                    self.copy(at);
                    if !self.escape() {
                        return (self.taken, self.written);
                    }
                }
            }
            self.copy(start + WIDTH);
        }
        while let Some(found) = memchr::memchr(b'\\', &self.content[self.taken..]) {
            self.copy(self.taken + found);
            if !self.escape() {
                return (self.taken, self.written);
            }
        }
        self.copy(self.content.len());
        (self.taken, self.written)
    }
}

impl Pass<'_> {
    /// Copies what stands before `end`.
    #[inline(always)]
    fn copy(&mut self, end: usize) {
        let len = end.saturating_sub(self.taken);
        // A block is copied faster than so many bytes of it, and what is too much is overwritten by what follows.
        if len <= WIDTH
            && let Some(block) = self.content[self.taken..].first_chunk::<WIDTH>()
            && let Some(room) = self.out[self.written..].first_chunk_mut::<WIDTH>()
        {
            *room = *block;
        } else {
            self.out[self.written..self.written + len]
                .copy_from_slice(&self.content[self.taken..self.taken + len]);
        }
        self.taken += len;
        self.written += len;
    }

    /// Writes what the escape stands for that is next; `false` if its end has not come.
    #[inline(always)]
    fn escape(&mut self) -> bool {
        if let Some(&letter) = self.content.get(self.taken + 1)
            && LETTERS[letter as usize] != 0
        {
            self.out[self.written] = LETTERS[letter as usize];
            self.taken += 2;
            self.written += 1;
            return true;
        }
        match unicode(&self.content[self.taken..], self.is_last) {
            Escape::Of(len, character) => {
                self.written += encode(character, &mut self.out[self.written..]);
                self.taken += len;
            }
            Escape::No => {
                self.out[self.written] = b'\\';
                self.taken += 1;
                self.written += 1;
            }
            Escape::Begun => return false,
        }
        true
    }
}

/// What the letter after a backslash makes of it; 0 if it is not one that JSON knows.
static LETTERS: [u8; 256] = {
    let mut letters = [0; 256];
    letters[b'"' as usize] = b'"';
    letters[b'\\' as usize] = b'\\';
    letters[b'/' as usize] = b'/';
    letters[b'b' as usize] = 0x08;
    letters[b'f' as usize] = 0x0c;
    letters[b'n' as usize] = b'\n';
    letters[b'r' as usize] = b'\r';
    letters[b't' as usize] = b'\t';
    letters
};

const UNIT: usize = 6;

fn unicode(content: &[u8], is_last: bool) -> Escape {
    let first = match unit(content, is_last) {
        Escape::Of(_, first) => first,
        other => return other,
    };
    if !(0xd800..0xdc00).contains(&first) {
        return Escape::Of(UNIT, first);
    }
    match unit(&content[UNIT..], is_last) {
        Escape::Of(_, second @ 0xdc00..0xe000) => {
            Escape::Of(2 * UNIT, 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
        }
        Escape::Begun => Escape::Begun,
        _ => Escape::Of(UNIT, first),
    }
}

/// The UTF-16 unit that `\u00e9` is.
fn unit(content: &[u8], is_last: bool) -> Escape {
    let mut unit = 0;
    for at in 0..UNIT {
        let Some(&byte) = content.get(at) else {
            return if is_last { Escape::No } else { Escape::Begun };
        };
        match (at, byte, char::from(byte).to_digit(16)) {
            (0, b'\\', _) | (1, b'u', _) => {}
            (2.., _, Some(digit)) => unit = unit << 4 | digit,
            _ => return Escape::No,
        }
    }
    Escape::Of(UNIT, unit)
}

/// Writes UTF-8, which `char` does not for half of a surrogate pair.
fn encode(character: u32, out: &mut [u8]) -> usize {
    let last = |shift: u32| 0x80 | (character >> shift & 0x3f) as u8;
    let first = |mark: u8, shift: u32| mark | (character >> shift) as u8;
    let (bytes, len) = match character {
        0..0x80 => ([first(0, 0), 0, 0, 0], 1),
        0x80..0x800 => ([first(0xc0, 6), last(0), 0, 0], 2),
        0x800..0x10000 => ([first(0xe0, 12), last(6), last(0), 0], 3),
        _ => ([first(0xf0, 18), last(12), last(6), last(0)], 4),
    };
    out[..len].copy_from_slice(&bytes[..len]);
    len
}

#[cfg(test)]
#[path = "unescape_tests.rs"]
mod tests;
