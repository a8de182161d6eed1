//! The grammar over one block, for blocks where nothing is wrong.
//!
//! Almost all blocks are like that. So this asks only whether any rule could be broken, with as few masks as
//! that takes; if one could, or the top level is reached, [`State::block`] looks again and says what and where.

use super::block::{State, escapes, next, next_from};
use crate::scan::{Block, WIDTH};

/// The bytes that belong to strings, and those between them.
#[derive(Clone, Copy)]
struct Layout {
    inside: u64,
    quotes: u64,
    outside: u64,
    white: u64,
}

impl State {
    /// Whether the block is fine. If not, the state is still that before it.
    #[inline(always)]
    pub(super) fn quick<B: Block>(&mut self, bytes: &[u8; WIDTH]) -> bool {
        let block = B::load(bytes);
        let mut strings = self.strings;
        let mut escaped = 0;
        let mut hex = 0;
        if block.has(b'\\') || strings.is_escaped() || self.hex != 0 {
            escaped = strings.escaped(block.eq(b'\\'));
        }
        let quotes = block.eq(b'"') & !escaped;
        let inside = strings.mask::<B>(quotes);
        if escaped | self.hex != 0 {
            let bad;
            (bad, hex) = escapes(block, escaped & inside, self.hex);
            if bad != 0 {
                return false;
            }
        }
        let outside = !(inside | quotes);
        let layout = Layout { inside, quotes, outside, white: block.le(b' ') & outside };
        let mut newlines = 0;
        if block.has_le(0x1f) {
            newlines = block.eq(b'\n') & outside;
            let allowed = newlines | (block.eq(b'\t') | block.eq(b'\r')) & outside;
            if block.le(0x1f) & !allowed != 0 || newlines != 0 && self.is_rows {
                return false;
            }
        }
        let is_fine = if layout.white == 0 {
            self.quick_structure::<B, false>(bytes, block, layout)
        } else {
            self.quick_structure::<B, true>(bytes, block, layout)
        };
        if is_fine {
            self.strings = strings;
            self.hex = hex;
            self.is_multiline |= newlines != 0;
        }
        is_fine
    }

    #[inline(always)]
    fn quick_structure<B: Block, const WHITE: bool>(
        &mut self,
        bytes: &[u8; WIDTH],
        block: B,
        Layout { inside, quotes, outside, white }: Layout,
    ) -> bool {
        let folded = block.fold();
        let open = folded.eq(b'{') & outside;
        let close = folded.eq(b'}') & outside;
        let Some(mut levels) = self.stack.levels() else { return false };
        let Some(in_object) = levels.follow(block, open, close) else { return false };
        let comma = block.eq(b',') & outside;
        let colon = block.eq(b':') & outside;
        let marks = comma | colon | close;
        let scalar = outside & !(white | open | marks);
        let runs = self.scalars.runs(scalar);
        let (mut bad, scalars) = self.scalars.check(bytes, block, scalar, runs.starts);

        let (mut lead, mut value, mut key_end) = (self.open | self.comma, self.value, self.key_end);
        let leading = next::<WHITE>(open | comma, &mut lead, white);
        let ends = quotes & !inside | close;
        let behind = ends << 1 | value | runs.behind;
        let after = next_from::<WHITE>(behind, ends >> 63, &mut value, white);
        // In an object, what follows a brace or a comma is a key.
        let keys = leading & in_object;
        let (carried, key) = inside.overflowing_add(keys & quotes | self.key);
        let after_key = next::<WHITE>(carried & !inside, &mut key_end, white);
        // Behind a value stands a comma, a colon or a closing bracket, and these nowhere else; behind a key stands
        // a colon, and that nowhere else.
        let unmarked = marks ^ after;
        let no_key = keys & !quotes;
        bad |= colon ^ after_key;
        if unmarked | no_key | bad != 0 {
            // Or the container is empty, and closed where something could follow its opening bracket.
            let empty = close & next::<WHITE>(open, &mut self.open.clone(), white);
            if (unmarked | no_key) & !empty | bad != 0 {
                return false;
            }
        }
        self.scalars = scalars;
        self.stack.set_levels(levels);
        if WHITE {
            // Which of the two it is that has nothing behind it yet, only the last of them tells.
            let last_open = open > comma || open | comma == 0 && self.open != 0;
            (self.open, self.comma) = if last_open { (lead, 0) } else { (0, lead) };
        } else {
            (self.open, self.comma) = (open >> 63, comma >> 63);
        }
        (self.value, self.key_end, self.key) = (value, key_end, u64::from(key));
        self.newline = 0;
        true
    }
}
