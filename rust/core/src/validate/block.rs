//! Checks the grammar of one block, with exact error positions.

use super::number::Scalars;
use super::stack::{MAX_DEPTH, Stack};
use crate::scan::{Block, StringState, WIDTH};

/// State that a block needs from all the bytes before it. Fields without a description are 1 if a token at
/// the end of the last block affects the first token of this one, else 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    pub(super) strings: StringState,
    pub(super) scalars: Scalars,
    pub(super) stack: Stack,
    /// Mask of the bytes of this block that must be hexadecimal digits.
    pub(super) hex: u64,
    /// 1 if the string that continues from the last block is a key.
    pub(super) key: u64,
    pub(super) open: u64,
    pub(super) comma: u64,
    pub(super) value: u64,
    pub(super) key_end: u64,
    pub(super) newline: u64,
    /// Whether a value has started.
    has_value: bool,
    /// Whether there is more than one top-level value.
    pub(super) is_rows: bool,
    /// Whether there is a newline inside the first value.
    pub(super) is_multiline: bool,
}

/// Masks of the bytes that break a rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Violations {
    control: u64,
    escape: u64,
    scalar: u64,
    structure: u64,
}

impl Violations {
    #[inline(always)]
    pub(super) fn any(&self) -> u64 {
        self.control | self.escape | self.scalar | self.structure
    }

    #[cold]
    pub(super) fn reason(&self) -> &'static str {
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

/// Masks of the bytes that are wrong in each kind of container.
#[derive(Clone, Copy)]
struct Contexts {
    top: u64,
    array: u64,
    object: u64,
    /// Values right after another value. At the top level they are rows.
    again: u64,
    newlines: u64,
}

/// Returns the mask of the first byte after each of `tokens` that is not white space. `carry` is 1 if a token
/// of the last block has none yet.
#[inline(always)]
pub(super) fn next<const WHITE: bool>(tokens: u64, carry: &mut u64, white: u64) -> u64 {
    next_from::<WHITE>(tokens << 1 | *carry, tokens >> 63, carry, white)
}

/// Like [`next`], from the mask of the bytes right after the tokens.
#[inline(always)]
pub(super) fn next_from<const WHITE: bool>(following: u64, last: u64, carry: &mut u64, white: u64) -> u64 {
    if !WHITE {
        *carry = last;
        return following;
    }
    // Adding a bit to a run of white space carries it to the byte after the run.
    let (carried, overflow) = (following & white).overflowing_add(white);
    *carry = last | u64::from(overflow);
    (carried | following) & !white
}

impl State {
    /// Returns the state after a comma directly inside the container that is open at `depth` now, or at the start of a
    /// row if `depth` is 0. `None` if fewer containers are open.
    pub(super) fn after_separator(&self, depth: u64) -> Option<Self> {
        let mut stack = self.stack.clone();
        while stack.depth > depth {
            stack.pop();
        }
        let Self { has_value, is_rows, is_multiline, .. } = *self;
        let comma = u64::from(depth > 0);
        (stack.depth == depth).then(|| Self {
            stack,
            comma,
            has_value,
            is_rows,
            is_multiline,
            ..Self::default()
        })
    }

    /// Whether nothing but white space was read.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_value
    }

    pub(super) fn is_complete(&self) -> bool {
        self.stack.depth == 0 && !self.strings.is_inside() && self.has_value
    }

    #[inline(always)]
    pub(super) fn check_exact<B: Block>(&mut self, bytes: &[u8; WIDTH]) -> Violations {
        let block = B::load(bytes);
        let escaped = self.strings.escaped_mask(block.eq(b'\\'));
        let quotes = block.eq(b'"') & !escaped;
        let inside = self.strings.inside_mask::<B>(quotes);
        let control = block.le(0x1f);
        let mut bad = Violations { control: control & inside, escape: 0, scalar: 0, structure: 0 };
        if escaped & inside | self.hex != 0 {
            (bad.escape, self.hex) = check_escapes(block, escaped & inside, self.hex);
        }

        let outside = !(inside | quotes);
        let mut newlines = 0;
        if control & outside != 0 {
            newlines = block.eq(b'\n') & outside;
            bad.control |= control & outside & !(newlines | block.eq(b'\t') | block.eq(b'\r'));
        }
        let white = (control | block.eq(b' ')) & outside;
        if white == 0 {
            self.check_structure::<B, false>(
                bytes,
                block,
                Masks { quotes, inside, white, newlines },
                &mut bad,
            );
        } else {
            self.check_structure::<B, true>(
                bytes,
                block,
                Masks { quotes, inside, white, newlines },
                &mut bad,
            );
        }
        bad
    }

    #[inline(always)]
    fn check_structure<B: Block, const WHITE: bool>(
        &mut self,
        bytes: &[u8; WIDTH],
        block: B,
        Masks { quotes, inside, white, newlines }: Masks,
        bad: &mut Violations,
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
        self.has_value |= value != 0;
        let first = next::<WHITE>(open, &mut self.open, white);
        let item = next::<WHITE>(comma, &mut self.comma, white);
        let ends = closing | close;
        let following = ends << 1 | self.value | runs.after;
        let after = next_from::<WHITE>(following, ends >> 63, &mut self.value, white);

        // Adding a bit to the bytes of a string carries it to its closing quote. That finds what follows a
        // string that is where a key may be.
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
        bad.structure |= self.check_nesting(open, open | close, block.bit5(), contexts);
        // A string where a key may be is a key only in an object, so the carries are masked.
        let in_object = u64::from(self.stack.is_object());
        self.key &= in_object;
        self.key_end &= in_object;
    }

    /// Walks from bracket to bracket, and checks the bytes between two brackets by the container they are in.
    fn check_nesting(&mut self, open: u64, mut brackets: u64, curly: u64, contexts: Contexts) -> u64 {
        let mut bad = 0;
        let mut rest = !0_u64;
        while brackets != 0 {
            let bit = brackets & brackets.wrapping_neg();
            brackets ^= bit;
            bad |= self.check_between(contexts, rest & (bit | (bit - 1)));
            rest &= !(bit | (bit - 1));
            let is_curly = curly & bit != 0;
            if open & bit != 0 {
                if self.stack.depth == MAX_DEPTH {
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
        bad | self.check_between(contexts, rest)
    }

    #[inline(always)]
    fn check_between(&mut self, contexts: Contexts, here: u64) -> u64 {
        if self.stack.depth == 0 {
            return self.check_top(contexts, here);
        }
        let mut bad = if self.stack.is_object() { contexts.object } else { contexts.array };
        if contexts.newlines & here != 0 {
            // A row is one line, but the first value is only known to be a row once there is a second.
            self.is_multiline = true;
            bad |= if self.is_rows { contexts.newlines } else { 0 };
        }
        bad & here
    }

    #[inline(always)]
    fn check_top(&mut self, contexts: Contexts, here: u64) -> u64 {
        let mut bad = contexts.top;
        if contexts.again & here != 0 {
            bad |= if self.is_multiline { contexts.again } else { 0 };
            self.is_rows = true;
        }
        bad & here
    }
}

/// Returns the mask of the bytes that break an escape, and that of the bytes of the next block that must be
/// hexadecimal digits. `escaped` is the mask of the escaped bytes, `hex` what the last block returned.
#[inline(always)]
pub(super) fn check_escapes<B: Block>(block: B, escaped: u64, hex: u64) -> (u64, u64) {
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

struct Masks {
    quotes: u64,
    inside: u64,
    white: u64,
    newlines: u64,
}
