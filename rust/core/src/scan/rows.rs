//! Finds where lines start: all lines of a text, or only those that are not blank.

use super::{Block, Isa, Kernel, WIDTH};

/// State of a scan over lines. It can continue from one piece to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rows {
    /// 1 if the next byte starts a line, else 0. If blank lines are skipped, it is the next byte that is not
    /// white space.
    pending: u64,
    skips_blank: bool,
}

/// Result of scanning some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Starts {
    /// Lines that start in the bytes, up to and including the requested one.
    pub(crate) count: u64,
    /// Where the requested line starts, if it was reached.
    pub(crate) reached: Option<usize>,
}

impl Rows {
    /// Returns the state at the start of a line that is already counted.
    pub(crate) fn inside(skips_blank: bool) -> Self {
        Self { pending: 0, skips_blank }
    }

    /// Returns the state at the start of a line that is not yet counted.
    pub(crate) fn before_line(skips_blank: bool) -> Self {
        Self { pending: 1, skips_blank }
    }

    /// Whether the next line is not yet counted.
    pub(crate) fn is_before_line(&self) -> bool {
        self.pending == 1
    }

    /// Returns the state after `bytes`, if blank lines are skipped.
    pub(crate) fn after(self, bytes: &[u8]) -> Self {
        match bytes.iter().rev().find(|&&byte| byte > b' ' || byte == b'\n') {
            Some(b'\n') => Self::before_line(self.skips_blank),
            Some(_) => Self::inside(self.skips_blank),
            None => self,
        }
    }

    /// Scans all of `bytes` and counts the lines that start in them.
    #[inline]
    pub(crate) fn count(&mut self, isa: Isa, bytes: &[u8]) -> u64 {
        isa.run(Pass::<false> { rows: self, bytes, target: u64::MAX }).count
    }

    /// Scans `bytes` up to the start of line number `target` from here.
    #[inline]
    pub(crate) fn seek(&mut self, isa: Isa, bytes: &[u8], target: u64) -> Starts {
        isa.run(Pass::<true> { rows: self, bytes, target })
    }

    #[inline(always)]
    fn block<B: Block>(&mut self, bytes: &[u8; WIDTH]) -> u64 {
        let block = B::load(bytes);
        let newlines = block.eq(b'\n');
        let after = newlines << 1 | self.pending;
        self.pending = newlines >> 63;
        if !self.skips_blank {
            return after;
        }
        // Adding a bit to a run of white space carries it to the byte after the run.
        let white = block.le(b' ');
        let (carried, overflow) = (after & white).overflowing_add(white);
        self.pending |= u64::from(overflow);
        (carried | after) & !white
    }
}

struct Pass<'a, const SEEK: bool> {
    rows: &'a mut Rows,
    bytes: &'a [u8],
    target: u64,
}

impl<const SEEK: bool> Kernel for Pass<'_, SEEK> {
    type Output = Starts;

    #[inline(always)]
    fn run<B: Block>(self) -> Starts {
        let Self { rows, bytes, target } = self;
        let mut state = *rows;
        let mut count = 0;
        let (blocks, rest) = bytes.as_chunks::<WIDTH>();
        for (i, block) in blocks.iter().enumerate() {
            let starts = state.block::<B>(block);
            count += u64::from(starts.count_ones());
            if SEEK && count >= target {
                *rows = Rows::inside(state.skips_blank);
                return reach(i * WIDTH, starts, count, target);
            }
        }
        if !rest.is_empty() {
            // Padded with line content, which is masked out of the result.
            let mut padded = [b'.'; WIDTH];
            padded[..rest.len()].copy_from_slice(rest);
            let starts = state.block::<B>(&padded);
            state.pending = starts >> rest.len() & 1;
            let starts = starts & !(!0 << rest.len());
            count += u64::from(starts.count_ones());
            if SEEK && count >= target {
                *rows = Rows::inside(state.skips_blank);
                return reach(blocks.len() * WIDTH, starts, count, target);
            }
        }
        *rows = state;
        Starts { count, reached: None }
    }
}

fn reach(base: usize, mut starts: u64, count: u64, target: u64) -> Starts {
    for _ in 0..u64::from(starts.count_ones()) - (count - target) - 1 {
        starts &= starts - 1;
    }
    Starts { count: target, reached: Some(base + starts.trailing_zeros() as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference: returns the starts of all lines but the first, which begins before the bytes.
    fn naive(bytes: &[u8], skips_blank: bool) -> Vec<usize> {
        let mut starts = Vec::new();
        let mut line = 0;
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let content = piece.iter().position(|&byte| !skips_blank || byte > b' ');
            starts.extend(content.filter(|_| line > 0).map(|at| line + at));
            line += piece.len();
        }
        starts
    }

    proptest! {
        #[test]
        fn matches_splitting(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), Just(b'\r'), Just(b'x')], 0..300),
            cuts in prop::collection::vec(0..300_usize, 0..4),
            target in 1..30_u64,
        ) {
            for isa in Isa::available() {
                for skips_blank in [true, false] {
                    let starts = naive(&bytes, skips_blank);
                    let result = Rows::inside(skips_blank).seek(isa, &bytes, target);
                    prop_assert_eq!(result.reached, starts.get(target as usize - 1).copied(), "{:?}", isa);
                    prop_assert_eq!(result.count, target.min(starts.len() as u64));

                    let mut cuts: Vec<_> = cuts.iter().map(|&cut| cut.min(bytes.len())).collect();
                    cuts.sort_unstable();
                    cuts.push(bytes.len());
                    let (mut rows, mut at, mut count) = (Rows::inside(skips_blank), 0, 0);
                    for cut in cuts {
                        let after = rows.after(&bytes[at..cut]);
                        count += rows.count(isa, &bytes[at..cut]);
                        prop_assert!(!skips_blank || rows == after, "{:?}", isa);
                        at = cut;
                    }
                    prop_assert_eq!(count, starts.len() as u64, "{:?}", isa);
                }
            }
        }
    }
}
