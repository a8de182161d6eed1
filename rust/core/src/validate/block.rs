//! The grammar over one block.

use super::number::Scalars;
use super::stack::{MOST_DEPTH, Stack};
use crate::scan::{Block, Strings, WIDTH};

/// What a block needs to know of all the bytes before it. Those that are not otherwise described are 1 where
/// a token at the end of the last block has its effect on the first token of this one, else 0.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) strings: Strings,
    pub(super) scalars: Scalars,
    pub(super) stack: Stack,
    /// Bytes of this block that must be hexadecimal digits.
    pub(super) hex: u64,
    /// 1 if the string that goes on is a key.
    pub(super) key: u64,
    pub(super) open: u64,
    pub(super) comma: u64,
    pub(super) value: u64,
    pub(super) key_end: u64,
    pub(super) newline: u64,
    /// Where values start, in any block so far.
    values: u64,
    /// There is more than one top-level value.
    pub(super) is_rows: bool,
    /// There is a newline inside of the first.
    pub(super) is_multiline: bool,
}

/// Bytes that break a rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bad {
    control: u64,
    escape: u64,
    scalar: u64,
    structure: u64,
}

impl Bad {
    #[inline(always)]
    pub(super) fn any(&self) -> u64 {
        self.control | self.escape | self.scalar | self.structure
    }

    #[cold]
    pub(super) fn why(&self) -> &'static str {
        let first = self.any() & self.any().wrapping_neg();
        if self.control & first != 0 {
            "control character"
        } else if self.escape & first != 0 {
            "invalid escape"
        } else if self.scalar & first != 0 {
            "malformed number or literal"
        } else {
            "unexpected character"
        }
    }
}

/// What is wrong with a byte depends on where it stands.
#[derive(Clone, Copy)]
struct Contexts {
    top: u64,
    array: u64,
    object: u64,
    /// A value right behind another; at the top this makes them rows.
    again: u64,
    newlines: u64,
}

/// The first byte behind each of `tokens` that is not white space. `carry`: one in the last block has none yet.
#[inline(always)]
pub(super) fn next<const WHITE: bool>(tokens: u64, carry: &mut u64, white: u64) -> u64 {
    next_from::<WHITE>(tokens << 1 | *carry, tokens >> 63, carry, white)
}

/// The same from the bytes right behind.
#[inline(always)]
pub(super) fn next_from<const WHITE: bool>(behind: u64, last: u64, carry: &mut u64, white: u64) -> u64 {
    if !WHITE {
        *carry = last;
        return behind;
    }
    // Adding a bit to a run of white space carries it to the byte behind the run.
    let (carried, overflow) = (behind & white).overflowing_add(white);
    *carry = last | u64::from(overflow);
    (carried | behind) & !white
}

impl State {
    /// Whether there was no value, nor anything else.
    pub(super) fn is_empty(&self) -> bool {
        self.values == 0
    }

    pub(super) fn is_complete(&self) -> bool {
        self.stack.depth == 0 && !self.strings.is_inside() && self.values != 0
    }

    #[inline(always)]
    pub(super) fn block<B: Block>(&mut self, bytes: &[u8; WIDTH]) -> Bad {
        let block = B::load(bytes);
        let escaped = self.strings.escaped(block.eq(b'\\'));
        let quotes = block.eq(b'"') & !escaped;
        let inside = self.strings.mask::<B>(quotes);
        let control = block.le(0x1f);
        let mut bad = Bad { control: control & inside, escape: 0, scalar: 0, structure: 0 };
        if escaped & inside | self.hex != 0 {
            (bad.escape, self.hex) = escapes(block, escaped & inside, self.hex);
        }

        let outside = !(inside | quotes);
        let mut newlines = 0;
        if control & outside != 0 {
            newlines = block.eq(b'\n') & outside;
            bad.control |= control & outside & !(newlines | block.eq(b'\t') | block.eq(b'\r'));
        }
        let white = (control | block.eq(b' ')) & outside;
        if white == 0 {
            self.structure::<B, false>(bytes, block, Quotes { quotes, inside, white, newlines }, &mut bad);
        } else {
            self.structure::<B, true>(bytes, block, Quotes { quotes, inside, white, newlines }, &mut bad);
        }
        bad
    }

    #[inline(always)]
    fn structure<B: Block, const WHITE: bool>(
        &mut self,
        bytes: &[u8; WIDTH],
        block: B,
        Quotes { quotes, inside, white, newlines }: Quotes,
        bad: &mut Bad,
    ) {
        let outside = !(inside | quotes);
        let folded = block.fold();
        let open = folded.eq(b'{') & outside;
        let close = folded.eq(b'}') & outside;
        let comma = block.eq(b',') & outside;
        let colon = block.eq(b':') & outside;
        let scalar = outside & !(white | open | close | comma | colon);
        let runs = self.scalars.runs(scalar);
        (bad.scalar, self.scalars) = self.scalars.check(bytes, block, scalar, runs.starts);

        let opening = quotes & inside;
        let closing = quotes & !inside;
        let value = opening | runs.starts | open;
        self.values |= value;
        let first = next::<WHITE>(open, &mut self.open, white);
        let item = next::<WHITE>(comma, &mut self.comma, white);
        let ends = closing | close;
        let behind = ends << 1 | self.value | runs.behind;
        let after = next_from::<WHITE>(behind, ends >> 63, &mut self.value, white);

        // Adding a bit to a string carries it to its closing quote: that is how a string that stands where a
        // key may be tells what is behind it.
        let key_starts = opening & (first | item) | self.key;
        let (carried, overflow) = inside.overflowing_add(key_starts);
        self.key = u64::from(overflow);
        let after_key = next::<WHITE>(carried & !inside, &mut self.key_end, white);
        let new_line = next::<WHITE>(newlines, &mut self.newline, white);

        bad.structure = (comma | colon) & !after | close & !(after | first) | colon & !after_key;
        let again = after & value;
        let contexts = Contexts {
            top: comma | colon | again & !new_line,
            array: colon | again,
            object: after_key & !colon | first & !(opening | close) | item & !opening | again,
            again,
            newlines,
        };
        bad.structure |= self.nest(open, open | close, block.bit5(), contexts);
        // A string that stands where a key may be is one in an object only: what is carried on must know.
        let in_object = u64::from(self.stack.is_object());
        self.key &= in_object;
        self.key_end &= in_object;
    }

    /// Walks from bracket to bracket: what stands between two of them is judged by where it stands.
    fn nest(&mut self, open: u64, mut brackets: u64, curly: u64, contexts: Contexts) -> u64 {
        let mut bad = 0;
        let mut rest = !0_u64;
        while brackets != 0 {
            let bit = brackets & brackets.wrapping_neg();
            brackets ^= bit;
            bad |= self.between(contexts, rest & (bit | (bit - 1)));
            rest &= !(bit | (bit - 1));
            let is_curly = curly & bit != 0;
            if open & bit != 0 {
                if self.stack.depth == MOST_DEPTH {
                    return bad | bit;
                }
                self.stack.push(is_curly);
            } else {
                if self.stack.depth == 0 || self.stack.is_object() != is_curly {
                    return bad | bit;
                }
                self.stack.pop();
            }
        }
        bad | self.between(contexts, rest)
    }

    #[inline(always)]
    fn between(&mut self, contexts: Contexts, here: u64) -> u64 {
        if self.stack.depth == 0 {
            return self.at_top(contexts, here);
        }
        let mut bad = if self.stack.is_object() { contexts.object } else { contexts.array };
        if contexts.newlines & here != 0 {
            // A row is one line; the first value is not known to be a row before there is a second.
            self.is_multiline = true;
            bad |= if self.is_rows { contexts.newlines } else { 0 };
        }
        bad & here
    }

    #[inline(always)]
    fn at_top(&mut self, contexts: Contexts, here: u64) -> u64 {
        let mut bad = contexts.top;
        if contexts.again & here != 0 {
            bad |= if self.is_multiline { contexts.again } else { 0 };
            self.is_rows = true;
        }
        bad & here
    }
}

/// The bytes that break an escape, and those of the next block that must be hexadecimal digits. `escaped` are
/// the bytes behind backslashes that escape them, `hex` what the last block left to be digits.
#[inline(always)]
pub(super) fn escapes<B: Block>(block: B, escaped: u64, hex: u64) -> (u64, u64) {
    let unicode = block.eq(b'u') & escaped;
    let known = [b'"', b'\\', b'/', b'b', b'f', b'n', b'r', b't'];
    let mut allowed = unicode;
    for byte in known {
        allowed |= block.eq(byte);
    }
    let must_be_hex = hex | unicode << 1 | unicode << 2 | unicode << 3 | unicode << 4;
    let mut bad = escaped & !allowed;
    if must_be_hex != 0 {
        bad |= must_be_hex & !(block.within(b'0', b'9') | block.fold().within(b'a', b'f'));
    }
    (bad, unicode >> 63 | unicode >> 62 | unicode >> 61 | unicode >> 60)
}

struct Quotes {
    quotes: u64,
    inside: u64,
    white: u64,
    newlines: u64,
}
