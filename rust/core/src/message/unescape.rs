//! Decodes the content of JSON strings.

use crate::scan::{Block, Isa, Kernel, StringState, WIDTH};

/// Decodes the content of a JSON string, given without its quotes.
///
/// A lone surrogate becomes three bytes, as in WTF-8. Unknown escapes are copied unchanged.
#[must_use]
pub fn unescape(content: &[u8]) -> Vec<u8> {
    let mut out = vec![0; content.len()];
    let (_, out_len) = Isa::detect().run(Pass::new(content, &mut out, true));
    out.truncate(out_len);
    out
}

/// Returns the length of the escape that `content` starts with, and of what [`unescape`] makes of it.
pub(crate) fn measure_escape(content: &[u8]) -> (usize, usize) {
    if let Some(&letter) = content.get(1)
        && SHORT_ESCAPES[letter as usize] != 0
    {
        return (2, 1);
    }
    match decode_unicode(content, true) {
        Escape::Decoded(len, character) => (len, encode(character, &mut [0; 4])),
        Escape::Invalid | Escape::Incomplete => (1, 1),
    }
}

/// [`unescape`] for content that arrives in pieces, cut anywhere.
#[derive(Debug, Clone)]
pub struct Unescaper {
    /// An incomplete escape at the end of the last piece.
    pending: Vec<u8>,
    isa: Isa,
}

impl Default for Unescaper {
    fn default() -> Self {
        Self { pending: Vec::new(), isa: Isa::detect() }
    }
}

impl Unescaper {
    /// Decodes the next piece and appends the result. An incomplete escape at its end is held back.
    pub fn push(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        while !self.pending.is_empty()
            && let Some((&next, rest)) = piece.split_first()
        {
            self.pending.push(next);
            piece = rest;
            self.decode_pending(out, false);
        }
        // Most strings have no escapes.
        if memchr::memchr(b'\\', piece).is_none() {
            return out.extend_from_slice(piece);
        }
        let consumed = append(self.isa, piece, out, false);
        self.pending.extend_from_slice(&piece[consumed..]);
    }

    /// Appends an escape that was held back and never completed. Another string may follow.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.decode_pending(out, true);
    }

    fn decode_pending(&mut self, out: &mut Vec<u8>, is_last: bool) {
        let consumed = append(self.isa, &self.pending, out, is_last);
        self.pending.drain(..consumed);
    }
}

/// Appends the decoded `content`. Returns how many bytes of it were consumed.
fn append(isa: Isa, content: &[u8], out: &mut Vec<u8>, is_last: bool) -> usize {
    let before = out.len();
    out.resize(before + content.len(), 0);
    let (consumed, out_len) = isa.run(Pass::new(content, &mut out[before..], is_last));
    out.truncate(before + out_len);
    consumed
}

/// A decoded `\u` escape.
enum Escape {
    /// The length of the escape, and the character or lone surrogate that it stands for.
    Decoded(usize, u32),
    /// Not an escape: the backslash stands for itself.
    Invalid,
    /// More input is needed to decide.
    Incomplete,
}

struct Pass<'a> {
    content: &'a [u8],
    /// As long as `content`: decoding never makes it longer.
    out: &'a mut [u8],
    is_last: bool,
    consumed: usize,
    out_len: usize,
}

impl<'a> Pass<'a> {
    fn new(content: &'a [u8], out: &'a mut [u8], is_last: bool) -> Self {
        Self { content, out, is_last, consumed: 0, out_len: 0 }
    }
}

impl Kernel for Pass<'_> {
    type Output = (usize, usize);

    #[inline(always)]
    fn run<B: Block>(mut self) -> (usize, usize) {
        let (blocks, _) = self.content.as_chunks::<WIDTH>();
        let mut strings = StringState::default();
        for (number, block) in blocks.iter().enumerate() {
            let start = number * WIDTH;
            let backslashes = B::load(block).eq(b'\\');
            let mut escapes = backslashes & !strings.escaped_mask(backslashes);
            if B::HAS_GATHER && escapes.count_ones() >= DENSE && self.decode_dense::<B>(block, start, escapes)
            {
                escapes &= 1 << (WIDTH - 1);
            }
            while escapes != 0 {
                let at = start + escapes.trailing_zeros() as usize;
                escapes &= escapes - 1;
                // The second half of a pair was consumed with the first.
                if at >= self.consumed {
                    self.copy(at);
                    if !self.decode_escape() {
                        return (self.consumed, self.out_len);
                    }
                }
            }
            self.copy(start + WIDTH);
        }
        while let Some(found) = memchr::memchr(b'\\', &self.content[self.consumed..]) {
            self.copy(self.consumed + found);
            if !self.decode_escape() {
                return (self.consumed, self.out_len);
            }
        }
        self.copy(self.content.len());
        (self.consumed, self.out_len)
    }
}

impl Pass<'_> {
    /// Decodes the block at `start` without a branch for each escape, up to one that continues behind the block.
    ///
    /// Returns `false`, and does nothing, if the block has escapes of other letters than the usual ones.
    #[inline(always)]
    fn decode_dense<B: Block>(&mut self, block: &[u8; WIDTH], start: usize, escapes: u64) -> bool {
        // The first byte may be the letter of an escape that was decoded with the block before.
        let skipped = self.consumed.saturating_sub(start);
        if skipped > 1 || self.consumed < start {
            return false;
        }
        let letters = escapes << 1;
        let loaded = B::load(block);
        let same = loaded.either(b'"', b'\\') | loaded.eq(b'/');
        let line_feeds = loaded.eq(b'n') & letters;
        let (tabs, returns) = (loaded.eq(b't') & letters, loaded.eq(b'r') & letters);
        if letters & !(same | line_feeds | tabs | returns) != 0 {
            return false;
        }
        let kept = !escapes & !0 << skipped;
        let Some(room) = self.out[self.out_len..].first_chunk_mut::<WIDTH>() else { return false };
        let mut filled = 0;
        for (number, word) in block.as_chunks::<8>().0.iter().enumerate() {
            let byte_of = |mask: u64| (mask >> (8 * number)) as u8 as usize;
            let mut word = u64::from_le_bytes(*word);
            word -= SPREAD[byte_of(line_feeds)] * u64::from(b'n' - b'\n');
            if tabs | returns != 0 {
                word -= SPREAD[byte_of(tabs)] * u64::from(b't' - b'\t');
                word -= SPREAD[byte_of(returns)] * u64::from(b'r' - b'\r');
            }
            let mask = SPREAD[byte_of(kept)];
            let packed = B::gather(word, (mask << 8).wrapping_sub(mask));
            if let Some(room) = room[filled..].first_chunk_mut() {
                *room = packed.to_le_bytes();
            }
            filled += byte_of(kept).count_ones() as usize;
        }
        self.out_len += filled;
        self.consumed = start + WIDTH - usize::from(escapes >> (WIDTH - 1) == 1);
        true
    }

    /// Copies the bytes up to `end`.
    #[inline(always)]
    fn copy(&mut self, end: usize) {
        let len = end.saturating_sub(self.consumed);
        // A whole block is copied faster than `len` bytes, and the excess is overwritten by the next copy.
        if len <= SHORT
            && let Some(piece) = self.content[self.consumed..].first_chunk::<SHORT>()
            && let Some(room) = self.out[self.out_len..].first_chunk_mut::<SHORT>()
        {
            *room = *piece;
        } else if len <= WIDTH
            && let Some(block) = self.content[self.consumed..].first_chunk::<WIDTH>()
            && let Some(room) = self.out[self.out_len..].first_chunk_mut::<WIDTH>()
        {
            *room = *block;
        } else {
            self.out[self.out_len..self.out_len + len]
                .copy_from_slice(&self.content[self.consumed..self.consumed + len]);
        }
        self.consumed += len;
        self.out_len += len;
    }

    /// Decodes the next escape; `false` if it is incomplete.
    #[inline(always)]
    fn decode_escape(&mut self) -> bool {
        if let Some(&letter) = self.content.get(self.consumed + 1)
            && SHORT_ESCAPES[letter as usize] != 0
        {
            self.out[self.out_len] = SHORT_ESCAPES[letter as usize];
            self.consumed += 2;
            self.out_len += 1;
            return true;
        }
        match decode_unicode(&self.content[self.consumed..], self.is_last) {
            Escape::Decoded(len, character) => {
                self.out_len += encode(character, &mut self.out[self.out_len..]);
                self.consumed += len;
            }
            Escape::Invalid => {
                self.out[self.out_len] = b'\\';
                self.consumed += 1;
                self.out_len += 1;
            }
            Escape::Incomplete => return false,
        }
        true
    }
}

/// The byte that each one-letter escape stands for; 0 if there is none.
static SHORT_ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table[b'/' as usize] = b'/';
    table[b'b' as usize] = 0x08;
    table[b'f' as usize] = 0x0c;
    table[b'n' as usize] = b'\n';
    table[b'r' as usize] = b'\r';
    table[b't' as usize] = b'\t';
    table
};

/// The length of a run that is copied with a single instruction.
const SHORT: usize = 16;

/// The number of escapes in a block from which [`Pass::decode_dense`] is faster.
const DENSE: u32 = 3;

/// For each bit of a mask of eight bytes, the lowest bit of its byte.
static SPREAD: [u64; 256] = {
    let mut table = [0; 256];
    let mut mask = 0;
    while mask < 256 {
        let mut bit = 0;
        while bit < 8 {
            table[mask] |= (mask as u64 >> bit & 1) << (8 * bit);
            bit += 1;
        }
        mask += 1;
    }
    table
};

const UNICODE_ESCAPE_LEN: usize = 6;

fn decode_unicode(content: &[u8], is_last: bool) -> Escape {
    let first = match decode_unit(content, is_last) {
        Escape::Decoded(_, first) => first,
        other => return other,
    };
    if !(0xd800..0xdc00).contains(&first) {
        return Escape::Decoded(UNICODE_ESCAPE_LEN, first);
    }
    match decode_unit(&content[UNICODE_ESCAPE_LEN..], is_last) {
        Escape::Decoded(_, second @ 0xdc00..0xe000) => {
            Escape::Decoded(2 * UNICODE_ESCAPE_LEN, 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
        }
        Escape::Incomplete => Escape::Incomplete,
        _ => Escape::Decoded(UNICODE_ESCAPE_LEN, first),
    }
}

/// Decodes one escape such as `\u00e9` to its UTF-16 unit.
#[inline(always)]
fn decode_unit(content: &[u8], is_last: bool) -> Escape {
    if let Some(&[b'\\', b'u', a, b, c, d]) = content.first_chunk() {
        let unit = HEX_DIGITS[a as usize] << 12
            | HEX_DIGITS[b as usize] << 8
            | HEX_DIGITS[c as usize] << 4
            | HEX_DIGITS[d as usize];
        if unit < NO_DIGIT {
            return Escape::Decoded(UNICODE_ESCAPE_LEN, unit);
        }
        return Escape::Invalid;
    }
    explain_unit(content, is_last)
}

/// What [`decode_unit`] returns for content that does not begin with `\u` and four more bytes.
#[cold]
fn explain_unit(content: &[u8], is_last: bool) -> Escape {
    let is_start = content.iter().take(UNICODE_ESCAPE_LEN).enumerate().all(|(at, &byte)| match at {
        0 => byte == b'\\',
        1 => byte == b'u',
        _ => byte.is_ascii_hexdigit(),
    });
    if is_start && content.len() < UNICODE_ESCAPE_LEN && !is_last {
        Escape::Incomplete
    } else {
        Escape::Invalid
    }
}

/// More than any four hexadecimal digits stand for.
const NO_DIGIT: u32 = 1 << 16;

/// The value of each hexadecimal digit, and [`NO_DIGIT`] for other bytes.
static HEX_DIGITS: [u32; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit as usize] as usize] = digit;
        table[b"0123456789ABCDEF"[digit as usize] as usize] = digit;
        digit += 1;
    }
    table
};

/// Writes a character or lone surrogate as UTF-8; `char` cannot hold surrogates.
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
