//! Stack of the open containers, one bit each.

use crate::scan::Block;

/// Maximum nesting depth. Bounds the memory that a hostile payload can take to 128 KiB.
pub(super) const MAX_DEPTH: u64 = 1 << 20;

#[derive(Debug, Clone, Default)]
pub(super) struct Stack {
    /// The innermost up to 64 containers, the innermost lowest: 1 for an object.
    innermost: u64,
    pub(super) depth: u64,
    /// What `innermost` was at every depth that is a multiple of 64.
    outer: Vec<u64>,
}

impl Stack {
    #[inline(always)]
    pub(super) fn is_object(&self) -> bool {
        self.innermost & 1 == 1
    }

    #[inline(always)]
    pub(super) fn push(&mut self, is_object: bool) {
        if self.depth.is_multiple_of(64) {
            self.spill();
        }
        self.innermost = self.innermost << 1 | u64::from(is_object);
        self.depth += 1;
    }

    /// Returns the innermost containers, if there are any.
    #[inline(always)]
    pub(super) fn levels(&self) -> Option<Levels> {
        Some(Levels { kinds: self.innermost, count: self.depth.checked_sub(1)? % 64 + 1 })
    }

    /// Stores what [`Stack::levels`] returned, after it has followed brackets.
    #[inline(always)]
    pub(super) fn set_levels(&mut self, levels: Levels) {
        self.depth = (self.depth - 1) / 64 * 64 + levels.count;
        self.innermost = levels.kinds;
    }

    /// Closes the innermost container. One must be open.
    #[inline(always)]
    pub(super) fn pop(&mut self) {
        self.innermost >>= 1;
        self.depth -= 1;
        if self.depth.is_multiple_of(64) {
            self.innermost = self.outer.pop().unwrap_or_default();
        }
    }

    #[cold]
    fn spill(&mut self) {
        self.outer.push(self.innermost);
    }
}

/// The innermost 1 to 64 containers of a stack: as many as one word holds.
#[derive(Clone, Copy)]
pub(super) struct Levels {
    kinds: u64,
    count: u64,
}

impl Levels {
    /// Follows the brackets of a block. Returns the mask of the bytes directly inside an object; a bracket
    /// counts to the container that it opens in or closes. `None` if a closing bracket does not match, or if
    /// these levels do not suffice.
    #[inline(always)]
    pub(super) fn follow<B: Block>(&mut self, block: B, open: u64, close: u64) -> Option<u64> {
        let brackets = open | close;
        if brackets == 0 {
            return Some((self.kinds & 1).wrapping_neg());
        }
        let curly = block.bit5();
        let count = brackets.count_ones();
        if B::HAS_GATHER && count <= MAX_BRACKETS {
            return self.follow_by_table::<B>(open, brackets, count, curly);
        }
        self.follow_one_by_one(open, brackets, curly)
    }

    #[inline(always)]
    fn follow_by_table<B: Block>(&mut self, open: u64, brackets: u64, count: u32, curly: u64) -> Option<u64> {
        let opens = B::gather(open, brackets);
        let curlies = B::gather(curly, brackets);
        let Steps { order, closed, opened } = &STEPS[(opens | 1 << count) as usize & 0xff];
        let selected = B::select(curlies, self.kinds & 0xff, order);
        // Bit i: whether the container after bracket i (or before it) is an object.
        let after = selected & 0xff & !(!0 << count);
        let before = after << 1 | self.kinds & 1;
        let mismatched = !opens & (before ^ curlies) & !(!0 << count);
        let outer = self.count.wrapping_sub(u64::from(*closed));
        let inner = outer.wrapping_add(u64::from(*opened));
        if mismatched != 0 || outer.wrapping_sub(1) > 63 || inner > 64 {
            return None;
        }
        let changes = B::scatter(after ^ before & !(!0 << count), brackets);
        let in_object = B::prefix_xor(changes) << 1 ^ (self.kinds & 1).wrapping_neg();
        self.kinds = self.kinds >> closed << opened | selected >> 8;
        self.count = inner;
        Some(in_object)
    }

    #[inline(always)]
    fn follow_one_by_one(&mut self, open: u64, mut brackets: u64, curly: u64) -> Option<u64> {
        let mut in_object = (self.kinds & 1).wrapping_neg();
        while brackets != 0 {
            let bit = brackets & brackets.wrapping_neg();
            brackets ^= bit;
            let is_curly = u64::from(curly & bit != 0);
            if open & bit != 0 {
                if self.count == 64 {
                    return None;
                }
                self.count += 1;
                self.kinds = self.kinds << 1 | is_curly;
            } else {
                if self.kinds & 1 != is_curly || self.count == 1 {
                    return None;
                }
                self.count -= 1;
                self.kinds >>= 1;
            }
            // For all bytes after the bracket; the next bracket changes them again.
            let after = !(bit | (bit - 1));
            in_object = in_object & !after | (self.kinds & 1).wrapping_neg() & after;
        }
        Some(in_object)
    }
}

const MAX_BRACKETS: u32 = 7;

/// Effect of a sequence of brackets on a stack.
#[derive(Clone, Copy)]
struct Steps {
    /// Sources of the kinds of containers: below 8 that bracket, from 8 on that level of the old stack. The
    /// first half has the kind of the container after each bracket, the second half the kinds of those
    /// opened, innermost first.
    order: [u8; 16],
    /// How many levels of the old stack are closed.
    closed: u8,
    /// How many levels are opened and not closed again.
    opened: u8,
}

/// Indexed by the brackets: a set bit for each that opens, and a set bit after the last.
static STEPS: [Steps; 256] = {
    let mut table = [Steps { order: [0x80; 16], closed: 0, opened: 0 }; 256];
    let mut row = 1;
    while row < 256 {
        let brackets = (row as u32).ilog2();
        let mut opened = [0; 8];
        let steps = &mut table[row];
        let mut i = 0;
        while i < brackets as usize {
            if row >> i & 1 == 1 {
                opened[steps.opened as usize] = i as u8;
                steps.opened += 1;
            } else if steps.opened > 0 {
                steps.opened -= 1;
            } else {
                steps.closed += 1;
            }
            steps.order[i] =
                if steps.opened > 0 { opened[steps.opened as usize - 1] } else { 8 + steps.closed };
            i += 1;
        }
        let mut i = 0;
        while i < steps.opened as usize {
            steps.order[8 + i] = opened[steps.opened as usize - 1 - i];
            i += 1;
        }
        row += 1;
    }
    table
};
