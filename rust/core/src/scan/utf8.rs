//! Tests whether bytes are UTF-8.
//!
//! Text in several languages mixes characters of one byte and of several in an order that no branch predictor learns.
//! So every block gets the whole test, without a branch; only long runs of ASCII are skipped.

use super::{Block, Isa, Kernel, WIDTH};

/// Inputs shorter than this are not worth the setup of our test.
const MIN_BYTES: usize = 2 * WIDTH;

/// How many blocks are skipped together if all their bytes are ASCII.
const GROUP_BLOCKS: usize = 8;

/// Whether all of `bytes` is UTF-8, and no character is cut at its end.
pub(crate) fn is_utf8(isa: Isa, bytes: &[u8]) -> bool {
    if bytes.len() < MIN_BYTES {
        return simdutf8::basic::from_utf8(bytes).is_ok();
    }
    isa.run(IsUtf8(bytes))
}

struct IsUtf8<'a>(&'a [u8]);

impl Kernel for IsUtf8<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<B: Block>(self) -> bool {
        if !B::HAS_UTF8 {
            return simdutf8::basic::from_utf8(self.0).is_ok();
        }
        let (blocks, rest) = self.0.as_chunks::<WIDTH>();
        // Spaces before the first byte and after the last, so that a character that is cut there breaks a rule.
        let mut before = B::load(&[b' '; WIDTH]);
        let (mut is_bad, mut is_ascii) = (false, true);
        for group in blocks.chunks(GROUP_BLOCKS) {
            let mut ascii = before.le(0x7f);
            if is_ascii {
                for block in group {
                    ascii &= B::load(block).le(0x7f);
                }
            }
            is_ascii &= ascii == !0;
            if is_ascii {
                // `before` may stay as it is: the next block only needs to know that it was ASCII.
                continue;
            }
            for block in group {
                let block = B::load(block);
                ascii &= block.le(0x7f);
                is_bad |= block.breaks_utf8(before);
                before = block;
            }
            is_ascii = ascii == !0;
        }
        let mut last = [b' '; WIDTH];
        last[..rest.len()].copy_from_slice(rest);
        !(is_bad | B::load(&last).breaks_utf8(before))
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use rules::{CONTINUED, TABLES};

/// The rules of UTF-8 as tables over nibbles (half bytes), for instruction sets that look up sixteen bytes at once.
#[cfg(target_arch = "x86_64")]
mod rules {
    /// The bit of the rule against two continuation bytes in a row. At the third and fourth byte of a character, exactly
    /// this bit must be set.
    pub(in crate::scan) const CONTINUED: u8 = 1;

    /// Invalid pairs of bytes, each as three sets of nibbles: the high and the low nibble of the first byte, and the high
    /// nibble of the second.
    const RULES: [(u16, u16, u16); 8] = [
        // A continuation after a continuation: the rule `CONTINUED`.
        (0x0f00, 0xffff, 0x0f00),
        // A continuation after ASCII.
        (0x00ff, 0xffff, 0x0f00),
        // No continuation after the first byte of a character of several bytes.
        (0xf000, 0xffff, 0xf0ff),
        // Overlong: a character of two bytes that fits into one.
        (0x1000, 0x0003, 0x0f00),
        // Overlong: a character of three bytes that fits into two.
        (0x4000, 0x0001, 0x0300),
        // Half of a surrogate pair.
        (0x4000, 0x2000, 0x0c00),
        // Overlong: a character of four bytes that fits into three; or a character above U+10FFFF.
        (0x8000, 0xffe1, 0x0100),
        // A character above U+10FFFF.
        (0x8000, 0xfff0, 0x0e00),
    ];

    /// For each nibble, the rules that it may break. A pair of bytes breaks a rule if all three tables have its bit.
    pub(in crate::scan) const TABLES: [[u8; 16]; 3] = {
        let mut tables = [[0; 16]; 3];
        let mut rule = 0;
        while rule < RULES.len() {
            let (high, low, next) = RULES[rule];
            let mut half = 0;
            while half < 16 {
                tables[0][half] |= ((high >> half & 1) as u8) << rule;
                tables[1][half] |= ((low >> half & 1) as u8) << rule;
                tables[2][half] |= ((next >> half & 1) as u8) << rule;
                half += 1;
            }
            rule += 1;
        }
        tables
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(bytes: &[u8]) -> std::result::Result<(), TestCaseError> {
        for isa in Isa::available() {
            prop_assert_eq!(is_utf8(isa, bytes), str::from_utf8(bytes).is_ok(), "{:?} {:?}", isa, bytes);
        }
        Ok(())
    }

    #[test]
    fn every_sequence_of_two_bytes_before_every_third() {
        // In the middle of a block, and across two.
        for start in [100, 127] {
            for pair in 0..=u16::MAX {
                let mut bytes = [b'a'; 200];
                bytes[start..start + 2].copy_from_slice(&pair.to_be_bytes());
                check(&bytes).unwrap();
                for tail in [&b"\x80"[..], b"\xbf\x80", b"\xbf\xbf\xbf"] {
                    bytes[start + 2..][..tail.len()].copy_from_slice(tail);
                    check(&bytes).unwrap();
                }
            }
        }
    }

    proptest! {
        #[test]
        fn matches_the_standard_library(
            text in "[a-z]{0,70}(\\PC|é|漢|😀){0,200}[a-z]{0,600}(\\PC|é|漢|😀){0,50}",
            cut in any::<prop::sample::Index>(),
            changed in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = text.into_bytes();
            check(&bytes)?;
            check(&bytes[..cut.index(bytes.len() + 1)])?;
            if !bytes.is_empty() {
                let at = changed.index(bytes.len());
                bytes[at] = byte;
                check(&bytes)?;
            }
        }
    }
}
