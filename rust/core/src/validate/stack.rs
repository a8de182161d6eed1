//! Which containers are open: a bit each.

/// Deeper than this is refused: it bounds what a hostile payload can make us remember to 128 KiB.
pub(super) const MOST_DEPTH: u64 = 1 << 20;

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
