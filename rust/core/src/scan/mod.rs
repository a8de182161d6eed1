//! Finds the structure of JSON without parsing it: 64-byte blocks as bit masks, one file per instruction set.
//!
//! This is the only module with `unsafe`. Routines elsewhere are written once, over `Block`, and run with
//! the best instructions of the machine through `Isa::run`.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512_escapes;
pub(crate) mod escapes;
mod isa;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[allow(unsafe_code)]
mod neon;
pub(crate) mod nesting;
pub(crate) mod rows;
mod scalar;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod sse2;
mod strings;
pub(crate) mod utf8;

pub use isa::Isa;
pub(crate) use isa::Kernel;
pub(crate) use strings::{StringState, closing_quote};

/// Bytes per block, one bit of a mask each.
pub(crate) const WIDTH: usize = 64;

/// Space for some bytes of a block. Eight more than all, because instruction sets write more than is needed.
pub(crate) type Compressed = [u8; WIDTH + 8];

/// 64 bytes that are tested in parallel: bit i of a mask is the result for byte i.
pub(crate) trait Block: Copy {
    fn load(bytes: &[u8; WIDTH]) -> Self;

    /// Begins to load the block that starts `distance` bytes after `bytes` into the cache. The address may be invalid.
    #[inline(always)]
    fn prefetch(_bytes: &[u8; WIDTH], _distance: usize) {}

    /// Whether a comparison makes a mask at once, so that a mask costs no more than a test.
    const HAS_MASKS: bool = false;

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

    /// Whether `second` comes right after `first` anywhere. `before` is the block one byte earlier.
    fn has_pair(self, first: u8, second: u8, before: &[u8; WIDTH]) -> bool;

    /// Whether any byte is at most `byte`, unsigned: cheaper than the mask.
    fn has_le(self, byte: u8) -> bool;

    /// Mask of the bytes from `low` to `high`, both included.
    fn within(self, low: u8, high: u8) -> u64;

    /// Mask of the bytes that have bit 5 set; among brackets, the curly ones.
    fn bit5(self) -> u64;

    /// Whether `breaks_utf8` is implemented.
    const HAS_UTF8: bool = false;

    /// Whether any byte and those before it break a rule of UTF-8. `before` is the block before this one.
    fn breaks_utf8(self, _before: Self) -> bool {
        true
    }

    /// Moves the bytes of `bytes` that are in a mask to the start of `to`. What follows them there has no meaning.
    #[inline(always)]
    fn compress(bytes: &[u8; WIDTH], mut mask: u64, to: &mut Compressed) {
        // More than are needed, so that the branches are few.
        for eight in to.as_chunks_mut::<8>().0 {
            if mask == 0 {
                break;
            }
            for byte in eight {
                *byte = bytes[mask.trailing_zeros() as usize % WIDTH];
                mask &= mask.wrapping_sub(1);
            }
        }
    }

    /// Whether the next two functions are implemented.
    const HAS_UNESCAPE: bool = false;

    /// Replaces the letters of escapes such as `\n` by what the escapes stand for, and moves the bytes of `kept` to the
    /// start of `to`. What follows them there has no meaning.
    ///
    /// Returns the letters that stand for nothing or begin a longer escape. If there are any, `to` has no meaning.
    fn unescape_letters(self, letters: u64, _kept: u64, _to: &mut [u8; WIDTH]) -> u64 {
        letters
    }

    /// Decodes the bytes before the first escape that is invalid or that may continue behind them, to the start of `to`.
    /// The first of them is not escaped.
    ///
    /// Returns how many bytes were decoded, and how many they became.
    fn unescape_start(self, _to: &mut [u8; WIDTH]) -> (usize, usize) {
        (0, 0)
    }

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

    struct Compress<'a>(&'a [u8; WIDTH], u64);

    impl Kernel for Compress<'_> {
        type Output = Vec<u8>;

        fn run<B: Block>(self) -> Vec<u8> {
            let mut to = [b'?'; WIDTH + 8];
            B::compress(self.0, self.1, &mut to);
            to[..self.1.count_ones() as usize].to_vec()
        }
    }

    struct AllMasks<'a> {
        block: &'a [u8; WIDTH],
        before: &'a [u8; WIDTH],
        byte: u8,
    }

    impl Kernel for AllMasks<'_> {
        type Output = [u64; 14];

        fn run<B: Block>(self) -> Self::Output {
            let Self { block, before, byte } = self;
            let block = B::load(block);
            let mask = block.eq(byte);
            let other = block.le(byte);
            let (gathered, scattered) = (B::gather(mask, other), B::scatter(mask, other));
            [
                mask,
                block.fold().eq(byte),
                other,
                B::prefix_xor(mask),
                gathered,
                scattered,
                block.within(byte, byte.saturating_add(9)),
                block.bit5(),
                u64::from(block.has_le(byte)),
                u64::from(block.has(byte)),
                B::select(mask & 0xff, other & 0xff, &ORDER),
                u64::from(block.has_either(byte, byte ^ 6)),
                block.either(byte, byte ^ 6),
                u64::from(block.has_pair(byte, b'"', before)),
            ]
        }
    }

    fn naive(bytes: &[u8; WIDTH], before: &[u8; WIDTH], byte: u8) -> [u64; 14] {
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
            u64::from((0..WIDTH).any(|i| before[i] == byte && bytes[i] == b'"')),
        ]
    }

    proptest! {
        #[test]
        fn every_instruction_set_matches_a_loop(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'"'), Just(b'{'), Just(b'[')], WIDTH + 1),
            byte in prop_oneof![any::<u8>(), Just(b'"'), Just(b'{'), Just(b'}')],
        ) {
            let before = bytes.first_chunk().expect("64 bytes and another");
            let block = bytes.last_chunk().expect("64 bytes and another");
            for isa in Isa::available() {
                let masks = isa.run(AllMasks { block, before, byte });
                prop_assert_eq!(masks, naive(block, before, byte), "{:?}", isa);
            }
        }

        #[test]
        fn compressed_bytes_are_those_of_the_mask(
            bytes in prop::array::uniform32(any::<[u8; 2]>()),
            mask in prop_oneof![any::<u64>(), Just(!0), Just(!0 << 3), (any::<u64>(), any::<u64>()).prop_map(|(a, b)| a & b)],
        ) {
            let bytes: [u8; WIDTH] = bytes.concat().try_into().expect("64 bytes");
            let expected: Vec<_> = (0..WIDTH).filter(|i| mask >> i & 1 == 1).map(|i| bytes[i]).collect();
            for isa in Isa::available() {
                prop_assert_eq!(isa.run(Compress(&bytes, mask)), expected.clone(), "{:?}", isa);
            }
        }
    }
}
