//! Structure of JSON without parsing it: 64-byte blocks as bit masks, one file an instruction set.
//!
//! This is the only room with `unsafe`. Routines elsewhere are written once, over [`Block`], and reach
//! the machine's best instructions through [`Isa::run`].

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
pub(crate) use strings::{Strings, closing_quote};

/// How many bytes one mask speaks of.
pub(crate) const WIDTH: usize = 64;

/// 64 bytes, asked in parallel: bit i of an answer speaks of byte i.
pub(crate) trait Block: Copy {
    fn load(bytes: &[u8; WIDTH]) -> Self;

    /// Sets bit 5 of every byte, which makes `[` a `{` and `]` a `}` and no other byte either of them.
    fn fold(self) -> Self;

    fn eq(self, byte: u8) -> u64;

    /// Bytes that are `one` or `other`.
    fn either(self, one: u8, other: u8) -> u64;

    /// Bytes that are at most `byte`, unsigned.
    fn le(self, byte: u8) -> u64;

    /// Whether any byte is `byte`: cheaper than asking which.
    fn has(self, byte: u8) -> bool;

    /// Whether any byte is `one` or `other`.
    fn has_either(self, one: u8, other: u8) -> bool;

    /// Whether anywhere this is `byte` where `other` is `other_byte`.
    fn has_both(self, byte: u8, other: Self, other_byte: u8) -> bool;

    /// Whether any byte is at most `byte`, unsigned: cheaper than asking which.
    fn has_le(self, byte: u8) -> bool;

    /// Bytes from `low` to `high`, both included.
    fn within(self, low: u8, high: u8) -> u64;

    /// Bytes that have bit 5 set: of the brackets, the curly ones.
    fn bit5(self) -> u64;

    /// Bit i becomes the exclusive or of bits 0 to i.
    fn prefix_xor(mask: u64) -> u64;

    /// Whether `gather` and `scatter` are instructions; where they are not, a loop over the bits is faster.
    const GATHERS: bool;

    /// The bits of `mask` at the places that `at` names, moved together.
    fn gather(mask: u64, at: u64) -> u64;

    /// Sixteen bits in a given order: below 8 those of `low`, from 8 on those of `high`; from 128 on none.
    fn select(low: u64, high: u64, order: &[u8; 16]) -> u64;

    /// The lowest bits of `bits`, moved apart to the places that `at` names.
    fn scatter(bits: u64, at: u64) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ORDER: [u8; 16] = [7, 15, 0x80, 3, 3, 8, 9, 1, 0, 12, 0xff, 6, 5, 4, 14, 2];

    struct Ask<'a>(&'a [u8; WIDTH], u8);

    impl Kernel for Ask<'_> {
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
        let ask =
            |hit: &dyn Fn(u8) -> bool| (0..WIDTH).fold(0_u64, |mask, i| mask | u64::from(hit(bytes[i])) << i);
        let mask = ask(&|b| b == byte);
        let prefix =
            (0..WIDTH).fold(0_u64, |out, i| out | u64::from((mask << (63 - i)).count_ones() % 2 == 1) << i);
        let other = ask(&|b| b <= byte);
        let places: Vec<_> = (0..WIDTH).filter(|i| other >> i & 1 == 1).collect();
        let gathered = places.iter().enumerate().fold(0, |out, (n, place)| out | (mask >> place & 1) << n);
        let scattered = places.iter().enumerate().fold(0, |out, (n, place)| out | (mask >> n & 1) << place);
        [
            mask,
            ask(&|b| b | 0x20 == byte),
            other,
            prefix,
            gathered,
            scattered,
            ask(&|b| b >= byte && b - byte <= 9),
            ask(&|b| b & 0x20 != 0),
            u64::from(other != 0),
            u64::from(mask != 0),
            ORDER.iter().rev().fold(0, |out, &from| {
                let bits = mask & 0xff | (other & 0xff) << 8;
                (out << 1) | if from < 128 { bits >> (from & 15) & 1 } else { 0 }
            }),
            u64::from(mask | ask(&|b| b == byte ^ 6) != 0),
            mask | ask(&|b| b == byte ^ 6),
            u64::from(mask & ask(&|b| b | 0x20 == b'{') != 0),
        ]
    }

    proptest! {
        #[test]
        fn every_instruction_set_answers_like_a_loop(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'"'), Just(b'{'), Just(b'[')], WIDTH),
            byte in prop_oneof![any::<u8>(), Just(b'"'), Just(b'{'), Just(b'}')],
        ) {
            let bytes: [u8; WIDTH] = bytes.try_into().expect("64 bytes");
            for isa in Isa::available() {
                prop_assert_eq!(isa.run(Ask(&bytes, byte)), naive(&bytes, byte), "{:?}", isa);
            }
        }
    }
}
