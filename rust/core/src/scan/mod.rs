//! Finds the structure of JSON without parsing it: 64-byte blocks as bit masks, one file per instruction set.
//!
//! This is the only module with `unsafe`. Routines elsewhere are written once, over `Block`, and run with
//! the best instructions of the machine through `Isa::run`.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
mod isa;
pub(crate) mod nesting;
pub(crate) mod rows;
mod scalar;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod sse2;
mod strings;

pub use isa::Isa;
pub(crate) use isa::Kernel;
pub(crate) use strings::{StringState, closing_quote};

/// Bytes per block, one bit of a mask each.
pub(crate) const WIDTH: usize = 64;

/// 64 bytes that are tested in parallel: bit i of a mask is the result for byte i.
pub(crate) trait Block: Copy {
    fn load(bytes: &[u8; WIDTH]) -> Self;

    /// Sets bit 5 of every byte, which makes `[` a `{` and `]` a `}` and no other byte either of them.
    fn fold(self) -> Self;

    fn eq(self, byte: u8) -> u64;

    /// Mask of the bytes that are `a` or `b`.
    fn either(self, a: u8, b: u8) -> u64;

    /// Mask of the bytes that are at most `byte`, unsigned.
    fn le(self, byte: u8) -> u64;

    /// Whether any byte is `byte`: cheaper than the mask.
    fn has(self, byte: u8) -> bool;

    /// Whether any byte is `a` or `b`.
    fn has_either(self, a: u8, b: u8) -> bool;

    /// Whether at any position this block has `byte` and `other` has `other_byte`.
    fn has_both(self, byte: u8, other: Self, other_byte: u8) -> bool;

    /// Whether any byte is at most `byte`, unsigned: cheaper than the mask.
    fn has_le(self, byte: u8) -> bool;

    /// Mask of the bytes from `low` to `high`, both included.
    fn within(self, low: u8, high: u8) -> u64;

    /// Mask of the bytes that have bit 5 set; among brackets, the curly ones.
    fn bit5(self) -> u64;

    /// Bit i becomes the exclusive or of bits 0 to i.
    fn prefix_xor(mask: u64) -> u64;

    /// Whether `gather` and `scatter` are single instructions. If not, a loop over the bits is faster.
    const HAS_GATHER: bool;

    /// Collects the bits of `mask` at the set bits of `at` in the lowest bits.
    fn gather(mask: u64, at: u64) -> u64;

    /// Picks sixteen bits by `order`: below 8 a bit of `low`, from 8 on a bit of `high`, from 128 on zero.
    fn select(low: u64, high: u64, order: &[u8; 16]) -> u64;

    /// Moves the lowest bits of `bits` to the set bits of `at`.
    fn scatter(bits: u64, at: u64) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ORDER: [u8; 16] = [7, 15, 0x80, 3, 3, 8, 9, 1, 0, 12, 0xff, 6, 5, 4, 14, 2];

    struct AllMasks<'a>(&'a [u8; WIDTH], u8);

    impl Kernel for AllMasks<'_> {
        type Output = [u64; 14];

        fn run<B: Block>(self) -> Self::Output {
            let block = B::load(self.0);
            let mask = block.eq(self.1);
            let other = block.le(self.1);
            let (gathered, scattered) = (B::gather(mask, other), B::scatter(mask, other));
            [
                mask,
                block.fold().eq(self.1),
                other,
                B::prefix_xor(mask),
                gathered,
                scattered,
                block.within(self.1, self.1.saturating_add(9)),
                block.bit5(),
                u64::from(block.has_le(self.1)),
                u64::from(block.has(self.1)),
                B::select(mask & 0xff, other & 0xff, &ORDER),
                u64::from(block.has_either(self.1, self.1 ^ 6)),
                block.either(self.1, self.1 ^ 6),
                u64::from(block.has_both(self.1, block.fold(), b'{')),
            ]
        }
    }

    fn naive(bytes: &[u8; WIDTH], byte: u8) -> [u64; 14] {
        let mask_of = |test: &dyn Fn(u8) -> bool| {
            (0..WIDTH).fold(0_u64, |mask, i| mask | u64::from(test(bytes[i])) << i)
        };
        let mask = mask_of(&|b| b == byte);
        let prefix =
            (0..WIDTH).fold(0_u64, |out, i| out | u64::from((mask << (63 - i)).count_ones() % 2 == 1) << i);
        let other = mask_of(&|b| b <= byte);
        let places: Vec<_> = (0..WIDTH).filter(|i| other >> i & 1 == 1).collect();
        let gathered = places.iter().enumerate().fold(0, |out, (n, place)| out | (mask >> place & 1) << n);
        let scattered = places.iter().enumerate().fold(0, |out, (n, place)| out | (mask >> n & 1) << place);
        [
            mask,
            mask_of(&|b| b | 0x20 == byte),
            other,
            prefix,
            gathered,
            scattered,
            mask_of(&|b| b >= byte && b - byte <= 9),
            mask_of(&|b| b & 0x20 != 0),
            u64::from(other != 0),
            u64::from(mask != 0),
            ORDER.iter().rev().fold(0, |out, &from| {
                let bits = mask & 0xff | (other & 0xff) << 8;
                (out << 1) | if from < 128 { bits >> (from & 15) & 1 } else { 0 }
            }),
            u64::from(mask | mask_of(&|b| b == byte ^ 6) != 0),
            mask | mask_of(&|b| b == byte ^ 6),
            u64::from(mask & mask_of(&|b| b | 0x20 == b'{') != 0),
        ]
    }

    proptest! {
        #[test]
        fn every_instruction_set_matches_a_loop(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'"'), Just(b'{'), Just(b'[')], WIDTH),
            byte in prop_oneof![any::<u8>(), Just(b'"'), Just(b'{'), Just(b'}')],
        ) {
            let bytes: [u8; WIDTH] = bytes.try_into().expect("64 bytes");
            for isa in Isa::available() {
                prop_assert_eq!(isa.run(AllMasks(&bytes, byte)), naive(&bytes, byte), "{:?}", isa);
            }
        }
    }
}
