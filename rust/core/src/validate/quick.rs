//! Quick check of one block, for blocks without errors.
//!
//! Almost all blocks have none. So this only tests whether any rule may be broken, with as few masks as possible. If one
//! may be, or the payload begins or ends, [`State::check_exact`] checks the block again and finds the position.
//!
//! On machines that can compress a block, [`PackedQuick`](super::packed::PackedQuick) does the same in less time.

use super::SeparatorCount;
use super::block::{State, check_escapes, next, next_from};
use super::stack::Levels;
use crate::scan::{Block, Kernel, WIDTH};

/// Checks the blocks of `bytes` up to the first that needs the exact check. Returns how many are valid.
pub(super) struct Quick<'a> {
    pub(super) state: &'a mut State,
    pub(super) bytes: &'a [u8],
    pub(super) count: &'a mut SeparatorCount,
}

impl Kernel for Quick<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<B: Block>(self) -> usize {
        if self.state.is_rows { self.run_blocks::<B, true>() } else { self.run_blocks::<B, false>() }
    }
}

impl Quick<'_> {
    #[inline(always)]
    fn run_blocks<B: Block, const ROWS: bool>(self) -> usize {
        let Self { state, bytes, count } = self;
        let Some(mut levels) = state.stack.levels(count, ROWS) else { return 0 };
        if ROWS && state.stack.depth == 0 && state.newline == 1 {
            // The newline after a row is read as if it were a comma, so no value is open after it.
            state.value = 0;
        }
        let mut valid = 0;
        for block in bytes.as_chunks::<WIDTH>().0 {
            if !state.check_quick::<B, ROWS>(block, &mut levels, &mut count.separators) {
                break;
            }
            valid += 1;
        }
        count.is_exact &= !levels.has_left();
        state.stack.set_levels(levels);
        valid
    }
}

/// Masks of the bytes that belong to strings, and of those between them.
#[derive(Clone, Copy)]
struct Layout {
    inside: u64,
    quotes: u64,
    outside: u64,
    white: u64,
}

/// What was found before the structure is checked.
#[derive(Clone, Copy)]
struct Found {
    /// Bytes directly inside an object; a bracket counts to the container that it opens in or closes.
    in_object: u64,
    comma: u64,
    /// Newlines between rows.
    separators: u64,
}

impl State {
    /// Whether the block is valid. If not, the state is unchanged.
    #[inline(always)]
    fn check_quick<B: Block, const ROWS: bool>(
        &mut self,
        bytes: &[u8; WIDTH],
        levels: &mut Levels,
        separators: &mut u64,
    ) -> bool {
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
            if block.le(0x1f) & !allowed != 0 {
                return false;
            }
        }
        let mut after = *levels;
        let containers =
            after.follow::<B>(block.fold().eq(b'{') & outside, block.fold().eq(b'}') & outside, block.bit5());
        if containers.bad != 0 {
            return false;
        }
        let layout = Layout { white: if ROWS { layout.white & !newlines } else { layout.white }, ..layout };
        let comma = block.eq(b',') & outside;
        let found = Found {
            in_object: containers.object << 1 | levels.is_object(),
            // The newlines between rows are read as if they were commas.
            separators: if ROWS { newlines } else { 0 },
            comma,
        };
        let level = containers.level;
        let colon = block.eq(b':') & outside;
        if ROWS && (comma | colon) & level | newlines & !level != 0 {
            return false;
        }
        let is_valid = if layout.white == 0 {
            self.check_quick_structure::<B, false>(bytes, block, layout, found)
        } else {
            self.check_quick_structure::<B, true>(bytes, block, layout, found)
        };
        if is_valid {
            *levels = after;
            self.strings = strings;
            self.hex = hex;
            let counted = if ROWS { newlines } else { comma & level };
            *separators += u64::from(counted.count_ones());
            self.is_multiline |= !ROWS && newlines != 0;
        }
        is_valid
    }

    #[inline(always)]
    fn check_quick_structure<B: Block, const WHITE: bool>(
        &mut self,
        bytes: &[u8; WIDTH],
        block: B,
        Layout { inside, quotes, outside, white }: Layout,
        Found { in_object, comma, separators }: Found,
    ) -> bool {
        let folded = block.fold();
        let open = folded.eq(b'{') & outside;
        let close = folded.eq(b'}') & outside;
        let colon = block.eq(b':') & outside;
        let marks = comma | colon | close | separators;
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
