//! Which containers are open: a bit each.

use crate::scan::Block;

/// Deeper than this is refused: it bounds what a hostile payload can make us remember to 128 KiB.
pub(super) const MOST_DEPTH: u64 = 1 << 20;

/// What the brackets of a block say of its bytes.
pub(super) struct Nested {
    /// Bytes directly inside of an object; a bracket counts to what it opens in or closes.
    pub(super) in_object: u64,
    /// Not 0 if a closing bracket does not fit what it closes.
    pub(super) crossed: u64,
    kinds: u64,
}

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

    /// Follows the brackets of a block, all at once, without entering or leaving anything yet. `None` if that
    /// could reach the top level, or leave the innermost 64.
    #[inline(always)]
    pub(super) fn after<B: Block>(&self, block: B, open: u64, close: u64) -> Option<Nested> {
        let mut level = self.depth.checked_sub(1)? % 64 + 1;
        let mut nested =
            Nested { in_object: (self.innermost & 1).wrapping_neg(), crossed: 0, kinds: self.innermost };
        let mut brackets = open | close;
        if brackets == 0 {
            return Some(nested);
        }
        let opens = u64::from(open.count_ones());
        if level + opens > 64 || self.depth + opens > MOST_DEPTH {
            return None;
        }
        let curly = block.bit5();
        while brackets != 0 {
            let bit = brackets & brackets.wrapping_neg();
            brackets ^= bit;
            let is_curly = u64::from(curly & bit != 0);
            let is_open = open & bit != 0;
            nested.crossed |= if is_open { 0 } else { nested.kinds & 1 ^ is_curly };
            nested.kinds = if is_open { nested.kinds << 1 | is_curly } else { nested.kinds >> 1 };
            level = if is_open { level + 1 } else { level - 1 };
            if level == 0 {
                return None;
            }
            // For all bytes behind the bracket; where another one follows, they change again.
            let behind = !(bit | (bit - 1));
            nested.in_object = nested.in_object & !behind | (nested.kinds & 1).wrapping_neg() & behind;
        }
        Some(nested)
    }

    /// Enters and leaves what [`Stack::after`] has followed.
    #[inline(always)]
    pub(super) fn enter(&mut self, open: u64, close: u64, nested: &Nested) {
        self.innermost = nested.kinds;
        self.depth = self.depth + u64::from(open.count_ones()) - u64::from(close.count_ones());
    }

    /// There must be a container open.
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
