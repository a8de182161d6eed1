//! Decodes the content of JSON strings.

use crate::scan::escapes::{HEX_DIGITS, NO_DIGIT, SHORT_ESCAPES};
use crate::scan::{Block, Isa, Kernel, StringState, WIDTH};

/// Decodes the content of a JSON string, given without its quotes.
///
/// A lone surrogate becomes three bytes, as in WTF-8. Unknown escapes are copied unchanged.
#[must_use]
pub fn unescape(content: &[u8]) -> Vec<u8> {
    let mut out = vec![0; content.len()];
    let (_, out_len) = Isa::detect().run(Pass::new(content, out.as_mut_slice(), true));
    out.truncate(out_len);
    out
}

/// Returns the length of what [`unescape`] returns; `None` where counting takes about as long as to decode and copy.
#[must_use]
pub fn unescaped_len(content: &[u8]) -> Option<usize> {
    let isa = Isa::detect();
    isa.has_compress().then(|| isa.run(Pass::new(content, Nowhere([0; WIDTH]), true)).1)
}

/// [`unescape`] into `out`, which is as long as [`unescaped_len`] says. Returns whether it was; if not, `out` has no
/// meaning.
#[must_use]
pub fn unescape_into(content: &[u8], out: &mut [u8]) -> bool {
    let len = out.len();
    Isa::detect().run(Pass::new(content, out, true)) == (content.len(), len)
}

/// Returns the length of the escape that `content` starts with, and of what [`unescape`] makes of it.
pub(crate) fn measure_escape(content: &[u8]) -> (usize, usize) {
    if let Some(&letter) = content.get(1)
        && SHORT_ESCAPES[letter as usize] != 0
    {
        return (2, 1);
    }
    match decode_unicode(content, true) {
        Escape::Decoded(len, character) => (len, encode(character).1),
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

/// Where decoded bytes go.
trait Output {
    /// Returns the space from `at` on. It may be less than is needed.
    fn room(&mut self, at: usize) -> &mut [u8];

    /// Copies any number of bytes to `at`; `false` if there is no space for them.
    fn copy(&mut self, at: usize, bytes: &[u8]) -> bool;
}

impl Output for &mut [u8] {
    #[inline(always)]
    fn room(&mut self, at: usize) -> &mut [u8] {
        self.get_mut(at..).unwrap_or_default()
    }

    #[inline(always)]
    fn copy(&mut self, at: usize, bytes: &[u8]) -> bool {
        let Some(room) = self.room(at).get_mut(..bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        true
    }
}

/// Output that is only counted.
struct Nowhere([u8; WIDTH]);

impl Output for Nowhere {
    #[inline(always)]
    fn room(&mut self, _at: usize) -> &mut [u8] {
        &mut self.0
    }

    #[inline(always)]
    fn copy(&mut self, _at: usize, _bytes: &[u8]) -> bool {
        true
    }
}

struct Pass<'a, O> {
    content: &'a [u8],
    out: O,
    is_last: bool,
    consumed: usize,
    out_len: usize,
}

impl<'a, O> Pass<'a, O> {
    fn new(content: &'a [u8], out: O, is_last: bool) -> Self {
        Self { content, out, is_last, consumed: 0, out_len: 0 }
    }
}

impl<O: Output> Kernel for Pass<'_, O> {
    type Output = (usize, usize);

    #[inline(always)]
    fn run<B: Block>(mut self) -> (usize, usize) {
        let is_whole = if B::HAS_UNESCAPE { self.decode_windows::<B>() } else { self.decode_blocks::<B>() };
        if is_whole {
            self.decode_rest();
        }
        (self.consumed, self.out_len)
    }
}

/// These functions return `false` where an escape is incomplete or there is no space left.
impl<O: Output> Pass<'_, O> {
    /// Decodes what fills whole blocks without a branch for each escape.
    #[inline(always)]
    fn decode_windows<B: Block>(&mut self) -> bool {
        let mut strings = StringState::default();
        // Locals stay in registers; through the reference they would be written back for every block.
        let (content, mut at, mut out_len) = (self.content, self.consumed, self.out_len);
        let is_whole = loop {
            let Some(window) = content.get(at..).and_then(|rest| rest.first_chunk()) else { break true };
            let Some(room) = self.out.room(out_len).first_chunk_mut() else { break true };
            let (block, before) = (B::load(window), strings);
            let backslashes = block.eq(b'\\');
            let letters = strings.escaped_mask(backslashes);
            let kept = !backslashes | letters;
            if block.unescape_letters(letters, kept, room) == 0 {
                at += WIDTH;
                out_len += kept.count_ones() as usize;
                continue;
            }
            // Back to the backslash of a letter that the block began with.
            at -= usize::from(before.is_escaped());
            strings = StringState::default();
            let Some(window) = content.get(at..).and_then(|rest| rest.first_chunk()) else { break true };
            let (consumed, len) = B::load(window).unescape_start(room);
            at += consumed;
            out_len += len;
            if consumed == 0 {
                (self.consumed, self.out_len) = (at, out_len);
                if !self.decode_escape() {
                    break false;
                }
                (at, out_len) = (self.consumed, self.out_len);
            }
        };
        // The backslash of a letter that comes next has been passed, but not decoded.
        (self.consumed, self.out_len) = (at - usize::from(strings.is_escaped()), out_len);
        is_whole
    }

    /// Decodes whole blocks where a vector cannot, escape by escape unless there are many.
    #[inline(always)]
    fn decode_blocks<B: Block>(&mut self) -> bool {
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
                if at >= self.consumed && !(self.copy(at) && self.decode_escape()) {
                    return false;
                }
            }
            if !self.copy(start + WIDTH) {
                return false;
            }
        }
        true
    }

    #[inline(always)]
    fn decode_rest(&mut self) -> bool {
        while let Some(found) = memchr::memchr(b'\\', &self.content[self.consumed..]) {
            if !(self.copy(self.consumed + found) && self.decode_escape()) {
                return false;
            }
        }
        self.copy(self.content.len())
    }

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
        let Some(room) = self.out.room(self.out_len).first_chunk_mut::<WIDTH>() else { return false };
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
    fn copy(&mut self, end: usize) -> bool {
        let len = end.saturating_sub(self.consumed);
        let rest = &self.content[self.consumed..];
        // A whole block is copied faster than `len` bytes, and the excess is overwritten by the next copy.
        if len <= SHORT
            && let Some(piece) = rest.first_chunk::<SHORT>()
            && let Some(room) = self.out.room(self.out_len).first_chunk_mut::<SHORT>()
        {
            *room = *piece;
        } else if len <= WIDTH
            && let Some(block) = rest.first_chunk::<WIDTH>()
            && let Some(room) = self.out.room(self.out_len).first_chunk_mut::<WIDTH>()
        {
            *room = *block;
        } else if !self.out.copy(self.out_len, &rest[..len]) {
            return false;
        }
        self.consumed += len;
        self.out_len += len;
        true
    }

    /// Decodes the next escape.
    #[inline(always)]
    fn decode_escape(&mut self) -> bool {
        if let Some(&letter) = self.content.get(self.consumed + 1)
            && SHORT_ESCAPES[letter as usize] != 0
        {
            return self.put(2, &[SHORT_ESCAPES[letter as usize]]);
        }
        match decode_unicode(&self.content[self.consumed..], self.is_last) {
            Escape::Decoded(len, character) => {
                let (bytes, encoded_len) = encode(character);
                self.put(len, &bytes[..encoded_len])
            }
            Escape::Invalid => self.put(1, b"\\"),
            Escape::Incomplete => false,
        }
    }

    /// Writes what the next `len` bytes of the content stand for.
    #[inline(always)]
    fn put(&mut self, len: usize, bytes: &[u8]) -> bool {
        let Some(room) = self.out.room(self.out_len).get_mut(..bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.consumed += len;
        self.out_len += bytes.len();
        true
    }
}

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
        let [a, b, c, d] = [a, b, c, d].map(|digit| HEX_DIGITS[digit as usize]);
        if (a | b | c | d) & NO_DIGIT != 0 {
            return Escape::Invalid;
        }
        let unit = u32::from(a) << 12 | u32::from(b) << 8 | u32::from(c) << 4 | u32::from(d);
        return Escape::Decoded(UNICODE_ESCAPE_LEN, unit);
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

/// Returns a character or lone surrogate as UTF-8, with its length; `char` cannot hold surrogates.
#[inline(always)]
fn encode(character: u32) -> ([u8; 4], usize) {
    let last = |shift: u32| 0x80 | (character >> shift & 0x3f) as u8;
    let first = |mark: u8, shift: u32| mark | (character >> shift) as u8;
    match character {
        0..0x80 => ([first(0, 0), 0, 0, 0], 1),
        0x80..0x800 => ([first(0xc0, 6), last(0), 0, 0], 2),
        0x800..0x10000 => ([first(0xe0, 12), last(6), last(0), 0], 3),
        _ => ([first(0xf0, 18), last(12), last(6), last(0)], 4),
    }
}

#[cfg(test)]
#[path = "unescape_tests.rs"]
mod tests;
