//! Which bytes are inside a string, carried from block to block.

use super::Block;

/// What a block needs to know of the bytes before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Strings {
    /// 1 if the next byte is escaped, else 0.
    escaped: u64,
    /// All ones inside a string, else 0.
    inside: u64,
}

const ODD: u64 = 0xAAAA_AAAA_AAAA_AAAA;

impl Strings {
    pub(crate) fn is_inside(&self) -> bool {
        self.inside != 0
    }

    /// Whether the next byte is escaped.
    pub(crate) fn is_escaped(&self) -> bool {
        self.escaped != 0
    }

    /// Bytes that a backslash before them escapes.
    #[inline(always)]
    pub(crate) fn escaped(&mut self, backslashes: u64) -> u64 {
        let carried = self.escaped;
        if backslashes == 0 {
            self.escaped = 0;
            return carried;
        }
        // In a run of backslashes every other one escapes its successor. Subtracting the run's start from
        // a comb of odd bits flips the comb along the run, whichever parity the run starts at.
        let starts = backslashes & !carried;
        let flipped = ((starts << 1) | ODD).wrapping_sub(starts) ^ ODD;
        self.escaped = (flipped & backslashes) >> 63;
        flipped ^ (backslashes | carried)
    }

    /// Bytes inside strings: each string's opening quote counts, its closing one does not.
    #[inline(always)]
    pub(crate) fn mask<B: Block>(&mut self, quotes: u64) -> u64 {
        let inside = B::prefix_xor(quotes) ^ self.inside;
        self.inside = (inside.cast_signed() >> 63).cast_unsigned();
        inside
    }

    /// What `before` is after `bytes`, given what it is after them and padding. Only escapes differ.
    pub(crate) fn unpad(&mut self, before: Self, bytes: &[u8]) {
        let run = bytes.iter().rev().take_while(|&&byte| byte == b'\\').count();
        let escaping =
            if run == bytes.len() { run as u64 - before.escaped.min(run as u64) } else { run as u64 };
        self.escaped = escaping % 2;
    }

    /// Both steps at once, for those who need neither by itself.
    #[inline(always)]
    pub(crate) fn of<B: Block>(&mut self, block: B) -> u64 {
        let escaped = self.escaped(block.eq(b'\\'));
        self.mask::<B>(block.eq(b'"') & !escaped)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Isa, Kernel, WIDTH};
    use super::*;
    use proptest::prelude::*;

    struct Inside<'a>(&'a [[u8; WIDTH]]);

    impl Kernel for Inside<'_> {
        type Output = Vec<u64>;

        #[inline(always)]
        fn run<B: Block>(self) -> Vec<u64> {
            let mut strings = Strings::default();
            self.0.iter().map(|bytes| strings.of(B::load(bytes))).collect()
        }
    }

    fn naive(bytes: &[u8]) -> Vec<u64> {
        let (mut inside, mut escaped) = (false, false);
        let mut masks = vec![0; bytes.len() / WIDTH];
        for (i, &byte) in bytes.iter().enumerate() {
            let quote = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            inside ^= quote;
            masks[i / WIDTH] |= u64::from(inside) << (i % WIDTH);
        }
        masks
    }

    proptest! {
        #[test]
        fn follows_quotes_and_escapes_like_a_loop(
            bytes in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'"'), Just(b'a')], WIDTH * 3),
        ) {
            for isa in Isa::available() {
                prop_assert_eq!(isa.run(Inside(bytes.as_chunks().0)), naive(&bytes), "{:?}", isa);
            }
        }
    }
}
