//! Structure of JSON without parsing it: 64-byte blocks as bit masks, one file an instruction set.
//!
//! This is the only room with `unsafe`. Routines elsewhere are written once, over [`Block`], and reach
//! the machine's best instructions through [`Isa::run`].

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
mod isa;
pub(crate) mod nesting;
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

    /// Bytes that are at most `byte`, unsigned.
    fn le(self, byte: u8) -> u64;

    /// Bit i becomes the exclusive or of bits 0 to i.
    fn prefix_xor(mask: u64) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Ask<'a>(&'a [u8; WIDTH], u8);

    impl Kernel for Ask<'_> {
        type Output = [u64; 4];

        fn run<B: Block>(self) -> Self::Output {
            let block = B::load(self.0);
            let mask = block.eq(self.1);
            [mask, block.fold().eq(self.1), block.le(self.1), B::prefix_xor(mask)]
        }
    }

    fn naive(bytes: &[u8; WIDTH], byte: u8) -> [u64; 4] {
        let ask =
            |hit: &dyn Fn(u8) -> bool| (0..WIDTH).fold(0_u64, |mask, i| mask | u64::from(hit(bytes[i])) << i);
        let mask = ask(&|b| b == byte);
        let prefix =
            (0..WIDTH).fold(0_u64, |out, i| out | u64::from((mask << (63 - i)).count_ones() % 2 == 1) << i);
        [mask, ask(&|b| b | 0x20 == byte), ask(&|b| b <= byte), prefix]
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
