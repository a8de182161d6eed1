//! Ranges of bytes, lines or items: one enum and one resolver for all of them.

use std::ops;

/// A range of units, which are bytes, lines or items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// `limit` units from `offset` on.
    Bounded {
        /// The first unit.
        offset: u64,
        /// How many at most.
        limit: u64,
    },
    /// Everything from `offset` on.
    From(u64),
    /// The last units, this many.
    Suffix(u64),
}

impl Range {
    /// Clips the range to `len` units. An offset at or past the end gives the empty range at the end.
    #[must_use]
    pub fn resolve(self, len: u64) -> ops::Range<u64> {
        match self {
            Self::Bounded { offset, limit } => {
                let start = offset.min(len);
                start..start.saturating_add(limit).min(len)
            }
            Self::From(offset) => offset.min(len)..len,
            Self::Suffix(count) => len.saturating_sub(count)..len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference: tests every unit.
    fn naive(range: Range, len: u64) -> Vec<u64> {
        (0..len)
            .filter(|&unit| match range {
                Range::Bounded { offset, limit } => unit >= offset && unit - offset < limit,
                Range::From(offset) => unit >= offset,
                Range::Suffix(count) => len - unit <= count,
            })
            .collect()
    }

    fn edge() -> impl Strategy<Value = u64> {
        prop_oneof![0..40_u64, Just(u64::MAX), Just(u64::MAX - 1)]
    }

    proptest! {
        #[test]
        fn resolve_matches_testing_every_unit(len in 0..30_u64, a in edge(), b in edge()) {
            for range in [Range::Bounded { offset: a, limit: b }, Range::From(a), Range::Suffix(a)] {
                let got = range.resolve(len);
                prop_assert!(got.start <= got.end && got.end <= len);
                prop_assert_eq!(got.collect::<Vec<_>>(), naive(range, len));
            }
        }
    }
}
