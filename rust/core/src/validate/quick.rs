//! Quick check of one block, for blocks without errors.
//!
//! Almost all blocks have none. So this only tests whether any rule may be broken, with as few masks as
//! possible. If one may be, or the top level is reached, [`State::check_exact`] checks the block again and
//! finds the position.

use super::block::{State, check_escapes, next, next_from};
use crate::scan::{Block, WIDTH};

/// Masks of the bytes that belong to strings, and of those between them.
#[derive(Clone, Copy)]
struct Layout {
    inside: u64,
    quotes: u64,
    outside: u64,
    white: u64,
}

impl State {
    /// Whether the block is valid. If not, the state is unchanged.
    #[inline(always)]
    pub(super) fn check_quick<B: Block>(&mut self, bytes: &[u8; WIDTH]) -> bool {
        let block = B::load(bytes);
        let mut strings = self.strings;
        let mut escaped = 0;
        let mut hex = 0;
        if block.has(b'\\') || strings.is_escaped() || self.hex != 0 {
            escaped = strings.escaped_mask(block.eq(b'\\'));
        }
        let quotes = block.eq(b'"') & !escaped;
        let inside = strings.inside_mask::<B>(quotes);
        if escaped | self.hex != 0 {
            let bad;
            (bad, hex) = check_escapes(block, escaped & inside, self.hex);
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
        let is_valid = if layout.white == 0 {
            self.check_quick_structure::<B, false>(bytes, block, layout)
        } else {
            self.check_quick_structure::<B, true>(bytes, block, layout)
        };
        if is_valid {
            self.strings = strings;
            self.hex = hex;
            self.is_multiline |= newlines != 0;
        }
        is_valid
    }

    #[inline(always)]
    fn check_quick_structure<B: Block, const WHITE: bool>(
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
        let following = ends << 1 | value | runs.after;
        let after = next_from::<WHITE>(following, ends >> 63, &mut value, white);
        // In an object, a key follows every brace or comma.
        let keys = leading & in_object;
        let (carried, key) = inside.overflowing_add(keys & quotes | self.key);
        let after_key = next::<WHITE>(carried & !inside, &mut key_end, white);
        // Commas, colons and closing brackets follow every value and nothing else; colons follow every key
        // and nothing else.
        let unmarked = marks ^ after;
        let no_key = keys & !quotes;
        bad |= colon ^ after_key;
        if unmarked | no_key | bad != 0 {
            // The exception is an empty container, which is closed right after its opening bracket.
            let empty = close & next::<WHITE>(open, &mut self.open.clone(), white);
            if (unmarked | no_key) & !empty | bad != 0 {
                return false;
            }
        }
        self.scalars = scalars;
        self.stack.set_levels(levels);
        if WHITE {
            // Only the last of the two can be the one that nothing follows yet.
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
