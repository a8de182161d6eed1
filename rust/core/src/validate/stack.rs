//! Stack of the open containers, one bit each.

use super::SeparatorCount;
use crate::scan::Block;

/// Maximum nesting depth. Bounds the memory that a hostile payload can take to 128 KiB.
pub(super) const MAX_DEPTH: u64 = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stack {
    /// Kinds of up to 64 innermost containers, the innermost in the top bit: 1 for an object.
    innermost: u64,
    pub(super) depth: u64,
    /// `innermost` at each depth that is a positive multiple of 64.
    outer: Vec<u64>,
}

impl Stack {
    #[inline(always)]
    pub(super) fn is_object(&self) -> bool {
        self.innermost >> 63 == 1
    }

    #[inline(always)]
    pub(super) fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.spill();
        }
        self.innermost = self.innermost >> 1 | u64::from(is_object) << 63;
        self.depth += 1;
    }

    /// Returns, for [`Nesting`](crate::scan::nesting::Nesting), how deep the containers inside the one at `depth` are
    /// nested, and whether the outermost of them is an object. `None` if `innermost` does not hold them all.
    pub(super) fn nested(&self, depth: u64) -> Option<(u64, bool)> {
        let inside = self.depth.checked_sub(depth)?;
        if inside == 0 {
            return Some((1, true));
        }
        if inside > (self.depth - 1) % 64 + 1 {
            return None;
        }
        let kinds = self.innermost >> (64 - inside);
        let is_object = kinds & 1 == 1;
        let objects = u64::from(kinds.count_ones());
        // Only brackets of the same kind count.
        Some((1 + if is_object { objects } else { inside - objects }, is_object))
    }

    /// Returns the innermost containers as a word. For rows, the wanted level is the top level, else that of `count`.
    /// `None` if the next block needs the exact check: without rows, that is for the start and the end of the payload.
    #[inline(always)]
    pub(super) fn levels(&self, count: &SeparatorCount, is_rows: bool) -> Option<Levels> {
        if self.depth == 0 && !is_rows {
            return None;
        }
        let base = self.depth.saturating_sub(1) / 64 * 64;
        let level = if is_rows { 0 } else { count.depth };
        Some(Levels {
            kinds: self.innermost,
            count: self.depth - base,
            level: level.wrapping_sub(base),
            floor: u64::from(base > 0 || !is_rows),
            has_left: 0,
        })
    }

    /// Stores what [`Stack::levels`] returned, after it has followed brackets.
    #[inline(always)]
    pub(super) fn set_levels(&mut self, levels: Levels) {
        self.depth = self.depth.saturating_sub(1) / 64 * 64 + levels.count;
        self.innermost = levels.kinds;
    }

    /// Closes the innermost container. One must be open.
    #[inline(always)]
    pub(super) fn pop(&mut self) {
        self.innermost <<= 1;
        self.depth -= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.innermost = self.outer.pop().unwrap_or_default();
        }
    }

    #[cold]
    fn spill(&mut self) {
        self.outer.push(self.innermost);
    }
}

/// The innermost up to 64 containers of a stack: as many as one word holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Levels {
    kinds: u64,
    count: u64,
    /// The count at the wanted level.
    level: u64,
    /// The lowest count that this word may fall to.
    floor: u64,
    /// Its top bit is set once the depth was below the wanted level.
    has_left: u64,
}

/// Masks of the bytes of a block by the containers they are in. The bits at brackets are undefined.
pub(super) struct Inside {
    /// Bytes directly inside an object.
    pub(super) object: u64,
    /// Bytes at the wanted level.
    pub(super) level: u64,
    /// Not 0 if a closing bracket does not match, or if one word of levels does not suffice.
    pub(super) bad: u64,
}

/// Brackets at which `object` or `level` changes, and whether one is wrong.
struct Changes {
    object: u64,
    level: u64,
    bad: u64,
}

impl Levels {
    /// Whether the depth was below the wanted level.
    pub(super) fn has_left(&self) -> bool {
        self.has_left >> 63 == 1
    }

    /// Returns 1 if the next byte is directly inside an object, else 0.
    #[inline(always)]
    pub(super) fn is_object(&self) -> u64 {
        self.kinds >> 63
    }

    /// Returns all ones if the next byte is at the wanted level, else 0.
    #[inline(always)]
    pub(super) fn is_at_level(&self) -> u64 {
        u64::from(self.count == self.level).wrapping_neg()
    }

    /// Follows the brackets of a block. `curly` has the bit of every bracket of an object.
    #[inline(always)]
    pub(super) fn follow<B: Block>(&mut self, open: u64, close: u64, curly: u64) -> Inside {
        let is_object = (self.kinds >> 63).wrapping_neg();
        let is_level = self.is_at_level();
        let mut brackets = open | close;
        if brackets == 0 {
            return Inside { object: is_object, level: is_level, bad: 0 };
        }
        let mut all = Changes { object: 0, level: 0, bad: 0 };
        loop {
            let changes = if B::HAS_GATHER {
                let some = B::scatter((1 << MAX_BRACKETS) - 1, brackets);
                brackets ^= some;
                self.follow_by_table::<B>(open, some, curly)
            } else {
                let some = std::mem::take(&mut brackets);
                self.follow_one_by_one(open, some, curly)
            };
            all.object |= changes.object;
            all.level |= changes.level;
            all.bad |= changes.bad;
            if brackets == 0 {
                break;
            }
        }
        Inside {
            object: B::prefix_xor(all.object) ^ is_object,
            level: B::prefix_xor(all.level) ^ is_level,
            bad: all.bad,
        }
    }

    #[inline(always)]
    fn follow_by_table<B: Block>(&mut self, open: u64, brackets: u64, curly: u64) -> Changes {
        let opens = B::gather(open, brackets);
        let curlies = B::gather(curly, brackets);
        let row = (opens | 1 << brackets.count_ones()) as usize & 0xff;
        let Steps { sources, used, closed, opened, peak, remaining } = STEPS[row];
        // Bit i: whether the container after bracket i (or before it) is an object.
        let after = B::select(curlies, self.kinds >> 56, &sources);
        let before = after << 1 | self.kinds >> 63;
        let mismatched = !opens & (before ^ curlies) & u64::from(used);
        let outer = self.count.wrapping_sub(u64::from(closed));
        let highest = self.count.wrapping_add(u64::from(peak));
        let out_of_word = (outer.wrapping_sub(self.floor) | 64_u64.wrapping_sub(highest)) >> 63;

        let above = self.count.wrapping_sub(self.level).min(HEIGHTS as u64 - 1);
        let switches = u64::from(SWITCHES[above as usize][row]);
        self.has_left |= outer.wrapping_sub(self.level);
        // The new state does not depend on `after`, so the next step can begin.
        let kinds = B::gather(curlies, u64::from(remaining)).rotate_right(u32::from(opened));
        self.kinds = self.kinds << (closed & 63) >> (opened & 63) | kinds;
        self.count = outer.wrapping_add(u64::from(opened));
        Changes {
            object: B::scatter((after ^ before) & u64::from(used), brackets),
            level: B::scatter(switches, brackets),
            bad: mismatched | out_of_word,
        }
    }

    #[inline(always)]
    fn follow_one_by_one(&mut self, open: u64, mut brackets: u64, curly: u64) -> Changes {
        let mut changes = Changes { object: 0, level: 0, bad: 0 };
        while brackets != 0 {
            let bit = brackets & brackets.wrapping_neg();
            brackets ^= bit;
            let is_curly = u64::from(curly & bit != 0);
            let (kind, is_level) = (self.kinds >> 63, self.count == self.level);
            if open & bit != 0 {
                if self.count == 64 {
                    return Changes { bad: bit, ..changes };
                }
                self.count += 1;
                self.kinds = self.kinds >> 1 | is_curly << 63;
            } else {
                if kind != is_curly || self.count == self.floor {
                    return Changes { bad: bit, ..changes };
                }
                self.count -= 1;
                self.has_left |= self.count.wrapping_sub(self.level);
                self.kinds <<= 1;
            }
            changes.object |= if self.kinds >> 63 == kind { 0 } else { bit };
            changes.level |= if is_level == (self.count == self.level) { 0 } else { bit };
        }
        changes
    }
}

/// Maximum number of brackets that are followed at once.
const MAX_BRACKETS: u32 = 7;

/// Effect of a sequence of brackets on a stack.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Steps {
    /// Source of the kind of the container after each bracket: below 8 that bracket, from 8 on the levels of the old
    /// stack, the innermost as 15.
    sources: [u8; 16],
    /// Mask of the brackets.
    used: u8,
    /// How many levels of the old stack are closed.
    closed: u8,
    /// How many levels are opened and not closed again.
    opened: u8,
    /// How far the depth rises at most.
    peak: u8,
    /// Mask of the brackets that open those levels.
    remaining: u8,
}

/// Indexed by the brackets: a set bit for each that opens, and a set bit after the last.
static STEPS: [Steps; 256] = {
    let none = Steps { sources: [0x80; 16], used: 0, closed: 0, opened: 0, peak: 0, remaining: 0 };
    let mut table = [none; 256];
    let mut row = 1_usize;
    while row < 256 {
        let mut opened = [0; 8];
        let steps = &mut table[row];
        let mut i = 0;
        while i < row.ilog2() as usize {
            if row >> i & 1 == 1 {
                opened[steps.opened as usize] = i as u8;
                steps.opened += 1;
                steps.remaining |= 1 << i;
            } else if steps.opened > 0 {
                steps.opened -= 1;
                steps.remaining &= !(1 << opened[steps.opened as usize]);
            } else {
                steps.closed += 1;
            }
            if steps.opened > steps.closed + steps.peak {
                steps.peak = steps.opened - steps.closed;
            }
            steps.sources[i] =
                if steps.opened > 0 { opened[steps.opened as usize - 1] } else { 15 - steps.closed };
            steps.used |= 1 << i;
            i += 1;
        }
        row += 1;
    }
    table
};

/// Heights above the wanted level that are distinguished. From the highest, no sequence of brackets returns to it.
const HEIGHTS: usize = MAX_BRACKETS as usize + 2;

/// Indexed by the height above the wanted level, and by the brackets as in [`STEPS`]: a bit for each bracket that
/// leaves the level or returns to it.
static SWITCHES: [[u8; 256]; HEIGHTS] = {
    let mut table = [[0; 256]; HEIGHTS];
    let mut height = 0;
    while height < HEIGHTS {
        let mut row = 1_usize;
        while row < 256 {
            let (mut now, mut i) = (height as i32, 0);
            while i < row.ilog2() {
                let then = now;
                now += if row >> i & 1 == 1 { 1 } else { -1 };
                if (then == 0) != (now == 0) {
                    table[height][row] |= 1 << i;
                }
                i += 1;
            }
            row += 1;
        }
        height += 1;
    }
    table
};
