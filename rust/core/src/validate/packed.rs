//! Quick check of blocks without errors.
//!
//! Almost all blocks have none. So this only tests whether any rule may be broken, and leaves all else to
//! [`State::check_exact`]: errors with their positions, and the start and the end of the payload.
//!
//! The first bytes of all tokens are packed together, without white space and the content of strings, so one step
//! checks the order of sixty-four tokens: those of several blocks. Likewise for the bytes of numbers and literals.
//!
//! What is in a block is hard to predict, and a mispredicted branch costs as much as sixty instructions. So each step
//! processes a whole batch of blocks.

use super::SeparatorCount;
use super::block::{State, check_escapes};
use super::packed_scalars::{LITERAL_BYTES, PackedScalars};
use super::stack::Levels;
use crate::scan::{Block, Kernel, StringState, WIDTH};

/// Checks the blocks of `bytes` up to the first that needs the exact check. Returns how many are valid.
pub(super) struct PackedQuick<'a> {
    pub(super) state: &'a mut State,
    pub(super) bytes: &'a [u8],
    pub(super) count: &'a mut SeparatorCount,
    pub(super) buffers: &'a mut Buffers,
}

/// Buffers that the steps share. They are large, so they are reused.
pub(super) struct Buffers {
    masks: [Masks; BATCH_BLOCKS],
    tokens: Packed,
    scalars: Packed,
    /// How many blocks the next batch has. Only one after a block that needed the exact check, because the next may
    /// need it, too.
    batch_len: usize,
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self {
            masks: [Masks::default(); BATCH_BLOCKS],
            tokens: Packed::new(),
            scalars: Packed::new(),
            batch_len: BATCH_BLOCKS,
        }
    }
}

impl Kernel for PackedQuick<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<B: Block>(self) -> usize {
        if self.state.is_rows { self.run_blocks::<B, true>() } else { self.run_blocks::<B, false>() }
    }
}

impl PackedQuick<'_> {
    #[inline(always)]
    fn run_blocks<B: Block, const ROWS: bool>(self) -> usize {
        let Self { state, bytes, count, buffers } = self;
        let Buffers { masks, tokens, scalars, batch_len } = buffers;
        let Some(mut walk) = PackedState::resume::<ROWS>(state, count) else { return 0 };
        let (blocks, _) = bytes.as_chunks::<WIDTH>();
        let mut valid = 0;
        while valid < blocks.len() {
            let batch = &blocks[valid..blocks.len().min(valid + *batch_len)];
            let masks = &mut masks[..batch.len()];
            let mut after = walk;
            let with_escapes = after.find_quotes::<B>(batch, masks);
            let following = &bytes[(valid + batch.len()) * WIDTH..];
            let bad = after.find_tokens::<B, ROWS>(batch, masks, tokens, scalars)
                | after.check_escapes::<B>(with_escapes, batch, masks)
                | after.check_scalars::<B>(scalars, following)
                | after.check_order::<B, ROWS>(tokens);
            if bad == 0 {
                walk = after;
                valid += batch.len();
                *batch_len = (*batch_len * 2).min(BATCH_BLOCKS);
            } else if batch.len() == 1 {
                *batch_len = 1;
                break;
            } else {
                // The state before the first bad block is needed, so the batch is read again in smaller ones.
                *batch_len = batch.len().div_ceil(8);
            }
        }
        count.separators += walk.separators;
        count.is_exact &= !walk.levels.has_left();
        walk.suspend(state, &bytes[valid * WIDTH..]);
        valid
    }
}

/// How far ahead of this step the payload is loaded into the cache: in an index, the next piece. The check for UTF-8
/// reads a piece first, and faster than memory delivers it, so this step lets memory load the next piece meanwhile.
const PREFETCH_BYTES: usize = 64 * 1024;

/// Blocks per batch; a [`Selection`] has a bit for each.
const BATCH_BLOCKS: usize = 64;

/// The blocks of a batch that a step is for, one bit each.
#[derive(Clone, Copy, Default)]
struct Selection(u64);

impl Selection {
    #[inline(always)]
    fn add_if(&mut self, block: usize, is_selected: bool) {
        self.0 |= u64::from(is_selected) << (block % BATCH_BLOCKS);
    }
}

impl Iterator for Selection {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let block = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(block)
    }
}

/// Masks of a block that one step passes to the next.
#[derive(Clone, Copy, Default)]
struct Masks {
    quotes: u64,
    /// Backslashes, then the bytes in strings that they escape.
    escaped: u64,
}

/// Bytes of one kind from a batch, packed together.
struct Packed {
    /// As many as a batch has, and room for whole blocks after them, because blocks are written and read whole.
    bytes: [u8; (BATCH_BLOCKS + 2) * WIDTH],
    len: usize,
}

impl Packed {
    fn new() -> Self {
        Self { bytes: [0; _], len: 0 }
    }

    /// Writes the bytes of a block that are in a mask after the first `len`. Returns the new length, which is only stored
    /// after the last block: until then it stays in a register.
    #[inline(always)]
    fn push<B: Block>(&mut self, len: usize, block: &[u8; WIDTH], mask: u64) -> usize {
        let Some(to) = self.bytes[len..].first_chunk_mut() else { return len };
        B::compress(block, mask, to);
        len + mask.count_ones() as usize
    }
}

/// What a block needs from the blocks before it: [`State`] in the form that takes the fewest instructions. Fields
/// without a description are 1 if the last token is one of these, else 0.
#[derive(Clone, Copy)]
struct PackedState {
    strings: StringState,
    /// The backslashes of the last block; all of its bytes if that is not known.
    backslashes: u64,
    hex: u64,
    scalars: PackedScalars,
    levels: Levels,
    /// A value or a closing bracket.
    value: u64,
    open: u64,
    /// A brace or comma that a key follows.
    lead: u64,
    key: u64,
    /// Union of the newlines of all blocks.
    newlines: u64,
    /// How many commas were at the wanted level, or newlines between rows.
    separators: u64,
}

impl PackedState {
    /// Returns the state before the next block; `None` if that block needs the exact check.
    #[inline(always)]
    fn resume<const ROWS: bool>(state: &State, count: &SeparatorCount) -> Option<Self> {
        let depth = state.stack.depth;
        let scalars = PackedScalars::resume(state.scalars)?;
        // The newline after a row is read as if it were a comma, so no value is open after it.
        let is_between_rows = depth == 0 && state.newline == 1;
        let ended = if is_between_rows { 0 } else { state.value };
        let in_object = u64::from(depth > 0 && state.stack.is_object());
        Some(Self {
            strings: state.strings,
            backslashes: !0,
            hex: state.hex,
            scalars,
            levels: state.stack.levels(count, ROWS)?,
            value: ended | u64::from(state.strings.is_inside()) | scalars.is_open(),
            open: state.open,
            lead: (state.open | state.comma) & in_object,
            key: state.key | state.key_end,
            newlines: 0,
            separators: 0,
        })
    }

    /// Stores the state before `next`, the bytes of the next block.
    #[inline(always)]
    fn suspend(self, state: &mut State, next: &[u8]) {
        let is_inside = u64::from(self.strings.is_inside());
        state.strings = self.strings;
        state.hex = self.hex;
        state.scalars = self.scalars.suspend(next);
        state.stack.set_levels(self.levels);
        state.value = self.value & !is_inside & !self.scalars.is_open();
        state.open = self.open;
        state.comma = self.lead & !self.open;
        state.key = self.key & is_inside;
        state.key_end = self.key & !is_inside;
        state.newline = 0;
        state.is_multiline |= self.newlines != 0;
    }

    /// Finds the quotes around strings. Returns the blocks with escapes, or the end of one from the block before.
    #[inline(always)]
    fn find_quotes<B: Block>(&mut self, blocks: &[[u8; WIDTH]], masks: &mut [Masks]) -> Selection {
        let (mut before, mut with_escapes) = (self.backslashes, Selection::default());
        for (i, (block, masks)) in blocks.iter().zip(&mut *masks).enumerate() {
            let block = B::load(block);
            let backslashes = block.eq(b'\\');
            (masks.quotes, masks.escaped) = (block.eq(b'"'), backslashes);
            // The longest escape has six bytes.
            with_escapes.add_if(i, backslashes | before >> 58 != 0);
            before = backslashes;
        }
        for i in with_escapes {
            let Some(masks) = masks.get_mut(i) else { break };
            masks.escaped = self.strings.escaped_mask(masks.escaped);
            masks.quotes &= !masks.escaped;
        }
        self.backslashes = before;
        with_escapes
    }

    /// Finds the first bytes of all tokens: brackets, commas, colons, opening quotes, and any other byte for a scalar.
    /// Finds the bytes of scalars, with one after each. Returns a mask that is not 0 if a rule is broken.
    #[inline(always)]
    fn find_tokens<B: Block, const ROWS: bool>(
        &mut self,
        blocks: &[[u8; WIDTH]],
        masks: &mut [Masks],
        tokens: &mut Packed,
        scalars: &mut Packed,
    ) -> u64 {
        let Self { mut strings, mut newlines, .. } = *self;
        let mut in_scalar = self.scalars.is_open();
        let mut bad = 0;
        let (mut token_len, mut scalar_len) = (0, 0);
        for (bytes, masks) in blocks.iter().zip(masks) {
            B::prefetch(bytes, PREFETCH_BYTES);
            let block = B::load(bytes);
            let quotes = masks.quotes;
            let inside = strings.inside_mask::<B>(quotes);
            let outside = !(inside | quotes);
            let structure = block.fold().either(b'{', b'}') | block.either(b',', b':');
            let scalar = outside & !(block.le(b' ') | structure);
            let after_scalar = scalar << 1 | in_scalar;
            in_scalar = scalar >> 63;
            let mut firsts = structure & outside | quotes & inside | scalar & !after_scalar;
            if block.has_le(0x1f) {
                let newline = block.eq(b'\n');
                let allowed = (newline | block.eq(b'\t') | block.eq(b'\r')) & outside;
                bad |= block.le(0x1f) & !allowed;
                if ROWS {
                    firsts |= newline;
                } else {
                    newlines |= newline;
                }
            }
            masks.escaped &= inside;
            token_len = tokens.push::<B>(token_len, bytes, firsts);
            scalar_len = scalars.push::<B>(scalar_len, bytes, scalar | after_scalar);
        }
        (tokens.len, scalars.len) = (token_len, scalar_len);
        (self.strings, self.newlines) = (strings, newlines);
        bad
    }

    /// Checks what backslashes escape. Returns a mask that is not 0 if a rule is broken.
    #[inline(always)]
    fn check_escapes<B: Block>(
        &mut self,
        with_escapes: Selection,
        blocks: &[[u8; WIDTH]],
        masks: &[Masks],
    ) -> u64 {
        let mut bad = 0;
        for i in with_escapes {
            let (Some(block), Some(masks)) = (blocks.get(i), masks.get(i)) else { break };
            let broken;
            (broken, self.hex) = check_escapes(B::load(block), masks.escaped, self.hex);
            bad |= broken;
        }
        bad
    }

    /// Checks the numbers and literals. Returns a mask that is not 0 if a rule is broken. `following` is what follows
    /// the batch: a literal may continue in it.
    #[inline(always)]
    fn check_scalars<B: Block>(&mut self, packed: &mut Packed, following: &[u8]) -> u64 {
        let Packed { bytes, len } = packed;
        let following = &following[..following.len().min(LITERAL_BYTES)];
        bytes[*len..][..following.len()].copy_from_slice(following);
        bytes[*len + following.len()..][..LITERAL_BYTES - following.len()].fill(0);
        let mut scalars = self.scalars;
        let (mut bad, mut at) = (0, 0);
        while at + WIDTH <= *len {
            let Some(window) = bytes[at..].first_chunk() else { break };
            bad |= scalars.check::<B>(window);
            at += WIDTH;
        }
        if at < *len {
            // Move the rest to the end of a block, because the state is taken from its last byte.
            let unused = WIDTH - (*len - at);
            let mut window = [b' '; WIDTH + LITERAL_BYTES];
            window[unused..].copy_from_slice(&bytes[at..*len + LITERAL_BYTES]);
            bad |= scalars.check_end::<B>(&window, unused);
        }
        self.scalars = scalars;
        bad
    }

    /// Checks the order of the tokens, and counts the commas at the wanted level, or the newlines between rows. Returns a
    /// mask that is not 0 if a rule is broken.
    #[inline(always)]
    fn check_order<B: Block, const ROWS: bool>(&mut self, tokens: &Packed) -> u64 {
        let Self {
            mut levels, mut value, open: mut opened, mut lead, mut key, separators: mut counted, ..
        } = *self;
        let (mut bad, mut at) = (0, 0);
        while at < tokens.len {
            let Some(bytes) = tokens.bytes[at..].first_chunk() else { break };
            let last = (tokens.len - at).min(WIDTH) - 1;
            at += WIDTH;
            let used = !0 >> (63 - last);
            let block = B::load(bytes);
            let folded = block.fold();
            let open = folded.eq(b'{') & used;
            let close = folded.eq(b'}') & used;
            let comma = block.eq(b',') & used;
            let colon = block.eq(b':') & used;
            let curly = block.bit5();
            let containers = levels.follow::<B>(open, close, curly);
            let mut separators = comma | colon | close;
            if ROWS {
                // The newlines between rows are read as if they were commas.
                let newline = block.eq(b'\n') & used;
                separators |= newline;
                counted += u64::from(newline.count_ones());
                bad |= (comma | colon) & containers.level | newline & !containers.level;
            } else {
                counted += u64::from((comma & containers.level).count_ones());
            }
            let ends = used & !(open | separators) | close;
            let after = ends << 1 | value;
            let leads = open & curly | comma & containers.object;
            let after_lead = (leads << 1 | lead) & used;
            let keys = after_lead & block.eq(b'"');
            let after_key = keys << 1 | key;
            // Separators follow every value and nothing else; a key follows every brace and comma of an object, and a colon
            // every key and nothing else. The exception is an empty container, which is closed right after its
            // opening bracket.
            let empty = close & (open << 1 | opened);
            let wrong = (separators ^ after) | (after_lead ^ keys) | (colon ^ after_key);
            bad |= wrong & used & !empty | containers.bad;
            let carry = |mask: u64| mask >> last & 1;
            (value, opened, lead, key) = (carry(ends), carry(open), carry(leads), carry(keys));
        }
        *self = Self { levels, value, open: opened, lead, key, separators: counted, ..*self };
        bad
    }
}
