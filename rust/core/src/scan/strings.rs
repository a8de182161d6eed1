//! Which bytes are inside a string, carried from block to block.

use super::{Block, Isa, Kernel, WIDTH};

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

    /// The same behind `bytes`, as far as escapes go.
    pub(crate) fn behind(self, bytes: &[u8]) -> Self {
        let run = bytes.iter().rev().take_while(|&&byte| byte == b'\\').count() as u64;
        let carried = if run == bytes.len() as u64 { self.escaped } else { 0 };
        // If the run's first is escaped itself, it escapes nothing.
        Self { escaped: (run + carried) % 2, ..self }
    }

    /// Quotes that no backslash escapes, of the block at `start` of `bytes`; this is what holds at the start of
    /// `bytes`. `before` is the block one byte earlier.
    ///
    /// Blocks in which a backslash stands before a quote are few, even among those with backslashes.
    #[inline(always)]
    pub(crate) fn quotes_at<B: Block>(&self, bytes: &[u8], start: usize, block: B, before: B) -> u64 {
        let quotes = block.eq(b'"');
        if !block.has_both(b'"', before, b'\\') {
            return quotes;
        }
        quotes & !self.escaped_at(bytes, start, block.eq(b'\\'))
    }

    #[inline(never)]
    fn escaped_at(&self, bytes: &[u8], start: usize, backslashes: u64) -> u64 {
        self.behind(&bytes[..start.min(bytes.len())]).escaped(backslashes)
    }

    /// Quotes that no backslash escapes.
    #[inline(always)]
    pub(crate) fn quotes<B: Block>(&mut self, block: B) -> u64 {
        // Whether there are any backslashes is cheaper to ask than where, and mostly there are none.
        if self.escaped != 0 || block.has(b'\\') {
            let escaped = self.escaped(block.eq(b'\\'));
            return block.eq(b'"') & !escaped;
        }
        block.eq(b'"')
    }
}

/// Where the string ends whose content starts with `bytes`: its closing quote.
#[inline]
pub(crate) fn closing_quote(isa: Isa, bytes: &[u8]) -> Option<usize> {
    isa.run(ClosingQuote(bytes))
}

struct ClosingQuote<'a>(&'a [u8]);

impl Kernel for ClosingQuote<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<B: Block>(self) -> Option<usize> {
        let mut strings = Strings::default();
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
            let mut strings = Strings::default();
            let mut masks = Vec::new();
            for bytes in self.0 {
                let quotes = strings.quotes(B::load(bytes));
                masks.push(strings.mask::<B>(quotes));
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
