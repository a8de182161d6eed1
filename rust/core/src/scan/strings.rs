//! Masks of the bytes inside strings, with the state that is carried from block to block.

use super::{Block, Isa, Kernel, WIDTH};

/// State that a block needs from the bytes before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StringState {
    /// 1 if the next byte is escaped, else 0.
    escaped: u64,
    /// All ones inside a string, else 0.
    inside: u64,
}

const ODD: u64 = 0xAAAA_AAAA_AAAA_AAAA;

impl StringState {
    pub(crate) fn is_inside(&self) -> bool {
        self.inside != 0
    }

    /// Whether the next byte is escaped.
    pub(crate) fn is_escaped(&self) -> bool {
        self.escaped != 0
    }

    /// Returns the mask of the bytes that a backslash before them escapes.
    #[inline(always)]
    pub(crate) fn escaped_mask(&mut self, backslashes: u64) -> u64 {
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

    /// Returns the mask of the bytes inside strings. It includes each opening quote, but not the closing one.
    #[inline(always)]
    pub(crate) fn inside_mask<B: Block>(&mut self, quotes: u64) -> u64 {
        let inside = B::prefix_xor(quotes) ^ self.inside;
        self.inside = (inside.cast_signed() >> 63).cast_unsigned();
        inside
    }

    /// Returns the state after `bytes`, as far as escapes are concerned.
    pub(crate) fn after(self, bytes: &[u8]) -> Self {
        let run = bytes.iter().rev().take_while(|&&byte| byte == b'\\').count() as u64;
        let carried = if run == bytes.len() as u64 { self.escaped } else { 0 };
        // If the first backslash of the run is escaped itself, it escapes nothing.
        Self { escaped: (run + carried) % 2, ..self }
    }

    /// Returns the mask of the unescaped quotes in the block at `start` of `bytes`. `self` is the state at
    /// the start of `bytes`, `before` is the block one byte earlier.
    ///
    /// Few blocks have a backslash right before a quote, even among those with backslashes. Where masks are cheap, such
    /// quotes are taken as escaped without a branch, which could not be predicted; only a second backslash, or a byte
    /// that cannot be seen, needs more.
    #[inline(always)]
    pub(crate) fn quotes_at<B: Block>(
        &self,
        bytes: &[u8],
        start: usize,
        block: B,
        before: &[u8; WIDTH],
    ) -> u64 {
        let quotes = block.eq(b'"');
        if B::HAS_MASKS {
            let preceded = B::load(before).eq(b'\\');
            if quotes & preceded & (preceded << 1 | 1) == 0 {
                return quotes & !preceded;
            }
        } else if !block.has_pair(b'\\', b'"', before) {
            return quotes;
        }
        quotes & !self.escaped_at(bytes, start, block.eq(b'\\'))
    }

    #[inline(never)]
    fn escaped_at(&self, bytes: &[u8], start: usize, backslashes: u64) -> u64 {
        self.after(&bytes[..start.min(bytes.len())]).escaped_mask(backslashes)
    }

    /// Returns the mask of the unescaped quotes.
    #[inline(always)]
    pub(crate) fn quotes<B: Block>(&mut self, block: B) -> u64 {
        // Testing for any backslash is cheaper than the mask, and most blocks have none.
        if self.escaped != 0 || block.has(b'\\') {
            let escaped = self.escaped_mask(block.eq(b'\\'));
            return block.eq(b'"') & !escaped;
        }
        block.eq(b'"')
    }
}

/// Returns the position of the closing quote of a string whose content starts with `bytes`.
#[inline]
pub(crate) fn closing_quote(isa: Isa, bytes: &[u8]) -> Option<usize> {
    isa.run(ClosingQuote(bytes))
}

struct ClosingQuote<'a>(&'a [u8]);

impl Kernel for ClosingQuote<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<B: Block>(self) -> Option<usize> {
        let mut strings = StringState::default();
        let (blocks, rest) = self.0.as_chunks::<WIDTH>();
        for (i, block) in blocks.iter().enumerate() {
            let found = strings.quotes(B::load(block));
            if found != 0 {
                return Some(i * WIDTH + found.trailing_zeros() as usize);
            }
        }
        let mut padded = [b' '; WIDTH];
        padded[..rest.len()].copy_from_slice(rest);
        let found = strings.quotes(B::load(&padded));
        (found != 0).then(|| blocks.len() * WIDTH + found.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Inside<'a>(&'a [[u8; WIDTH]]);

    impl Kernel for Inside<'_> {
        type Output = Vec<u64>;

        #[inline(always)]
        fn run<B: Block>(self) -> Vec<u64> {
            let mut strings = StringState::default();
            let mut masks = Vec::new();
            for bytes in self.0 {
                let quotes = strings.quotes(B::load(bytes));
                masks.push(strings.inside_mask::<B>(quotes));
            }
            masks
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
        fn finds_the_closing_quote_like_a_loop(
            bytes in prop::collection::vec(prop_oneof![4 => Just(b'\\'), 1 => Just(b'"'), 4 => Just(b'a')], 0..200),
        ) {
            let mut escaped = false;
            let naive = bytes.iter().position(|&byte| {
                let was_escaped = escaped;
                escaped = byte == b'\\' && !was_escaped;
                byte == b'"' && !was_escaped
            });
            for isa in Isa::available() {
                prop_assert_eq!(closing_quote(isa, &bytes), naive, "{:?}", isa);
            }
        }

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
