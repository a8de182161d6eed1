//! What a JSON string stands for.

use crate::scan::{Block, Isa, Kernel, WIDTH};

/// What the content of a JSON string, without its quotes, stands for.
///
/// Half of a surrogate pair becomes the three bytes that UTF-8 would have for it, if it had. What is no escape that
/// JSON knows stays as it is.
#[must_use]
pub fn unescape(content: &[u8]) -> Vec<u8> {
    let mut out = vec![0; content.len()];
    let (_, written) = Isa::detect().run(Pass { content, out: &mut out, is_last: true });
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
    let (taken, written) = isa.run(Pass { content, out: &mut out[before..], is_last });
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
}

impl Kernel for Pass<'_> {
    type Output = (usize, usize);

    #[inline(always)]
    fn run<B: Block>(self) -> (usize, usize) {
        let Self { content, out, is_last } = self;
        let (mut from, mut to) = (0, 0);
        while let Some(&byte) = content.get(from) {
            // A block is copied whole, also where an escape in it makes that too much: the next one overwrites it.
            if let Some(block) = content[from..].first_chunk::<WIDTH>()
                && let Some(room) = out[to..].first_chunk_mut::<WIDTH>()
            {
                *room = *block;
                let plain = B::load(block).eq(b'\\').trailing_zeros() as usize;
                from += plain;
                to += plain;
                if plain == WIDTH {
                    continue;
                }
            } else if byte != b'\\' {
                out[to] = byte;
                from += 1;
                to += 1;
                continue;
            }
            if let Some(&letter) = content.get(from + 1)
                && LETTERS[letter as usize] != 0
            {
                out[to] = LETTERS[letter as usize];
                from += 2;
                to += 1;
                continue;
            }
            match unicode(&content[from..], is_last) {
                Escape::Of(len, character) => {
                    to += encode(character, &mut out[to..]);
                    from += len;
                }
                Escape::No => {
                    out[to] = b'\\';
                    from += 1;
                    to += 1;
                }
                Escape::Begun => break,
            }
        }
        (from, to)
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
