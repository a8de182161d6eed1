//! What stands directly inside a container, and where the container ends.

use super::{Block, Isa, Kernel, Strings, WIDTH};

/// A pass over the inside of an array or object that may go on from one piece of it to the next.
/// It trusts what it reads: brackets are not checked to be of the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nesting {
    strings: Strings,
    /// 1 directly inside, more inside of something that is inside, 0 once it has ended.
    depth: u64,
}

/// For how many blocks one way of passing them is kept to.
const BATCH: usize = 32;

const MOST_BRACKETS: u32 = 8;
const DEPTHS: usize = 16;
const CLOSES: u16 = 1 << 15;

/// For a depth and up to eight brackets (bit set: it opens), at which of them depth 1 is entered or left;
/// `CLOSES` if depth 0 is.
static AT_DEPTH_1: [[u16; 256]; DEPTHS] = {
    let mut table = [[0; 256]; DEPTHS];
    let mut depth = 1;
    while depth < DEPTHS {
        let mut kinds = 0;
        while kinds < 256 {
            let (mut now, mut i, mut entry) = (depth, 0, 0);
            while i < MOST_BRACKETS {
                let then = now;
                if kinds >> i & 1 == 1 {
                    now += 1;
                } else {
                    now -= 1;
                }
                if now == 0 {
                    entry |= CLOSES;
                    break;
                }
                if (then == 1) != (now == 1) {
                    entry |= 1 << i;
                }
                i += 1;
            }
            table[depth][kinds] = entry;
            kinds += 1;
        }
        depth += 1;
    }
    table
};

/// Why a pass stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The bytes ran out.
    Exhausted,
    /// The container's closing bracket was the last byte taken.
    Closed,
    /// The comma that was asked for was the last byte taken.
    Reached,
}

/// What a pass over some bytes found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) consumed: usize,
    /// Commas directly inside, the one that was reached included.
    pub(crate) commas: u64,
    pub(crate) stop: Stop,
}

impl Nesting {
    /// Right after the opening bracket, or right after a comma directly inside.
    pub(crate) fn inside() -> Self {
        Self { strings: Strings::default(), depth: 1 }
    }

    /// Goes on over `bytes` to the closing bracket.
    #[inline]
    pub(crate) fn close(&mut self, isa: Isa, bytes: &[u8]) -> Progress {
        isa.run(Pass::<false> { nesting: self, bytes, most: u64::MAX })
    }

    /// Goes on over `bytes` to the closing bracket or the `most`th comma, whichever is first.
    #[inline]
    pub(crate) fn seek(&mut self, isa: Isa, bytes: &[u8], most: u64) -> Progress {
        isa.run(Pass::<true> { nesting: self, bytes, most })
    }

    /// The commas directly inside within a block, and the closing bracket's bit if it is in it.
    ///
    /// Whether a block comes back to depth 1 decides how much there is to do for it. `STRAIGHT` does all of
    /// it for every block instead of asking: cheaper where the answer cannot be guessed.
    #[inline(always)]
    fn block<B: Block, const STRAIGHT: bool>(&mut self, bytes: &[u8; WIDTH], near: &mut usize) -> (u64, u64) {
        let block = B::load(bytes);
        let quotes = self.strings.quotes(block);
        let folded = block.fold();
        if !STRAIGHT && !folded.has_either(b'{', b'}') {
            if self.depth > 1 {
                self.strings.pass(quotes);
                return (0, 0);
            }
            *near += 1;
            return (block.eq(b',') & !self.strings.mask::<B>(quotes), 0);
        }
        let outside = !self.strings.mask::<B>(quotes);
        let open = folded.eq(b'{') & outside;
        let close = folded.eq(b'}') & outside;
        let closes = u64::from(close.count_ones());
        let depth = self.depth;
        let is_near = depth <= closes + 1;
        *near += usize::from(is_near);
        if !STRAIGHT && !is_near {
            // However they are ordered, the brackets of this block do not come back to depth 1.
            self.depth = depth + u64::from(open.count_ones()) - closes;
            return (0, 0);
        }
        let commas = block.eq(b',') & outside;
        let brackets = open | close;
        if !STRAIGHT && brackets == 0 {
            return (commas, 0);
        }
        if B::GATHERS && brackets.count_ones() <= MOST_BRACKETS && depth < DEPTHS as u64 {
            // What is not a bracket of this block reads as one that opens, which changes nothing before it.
            let kinds = B::gather(open, brackets) | !0 << brackets.count_ones();
            let at = AT_DEPTH_1[depth as usize][(kinds & 0xff) as usize];
            if at & CLOSES == 0 {
                self.depth = depth + u64::from(open.count_ones()) - closes;
                let switches = B::scatter(u64::from(at), brackets);
                let inside = B::prefix_xor(switches) ^ u64::from(depth == 1).wrapping_neg();
                return (commas & inside, 0);
            }
        }
        self.bracket_by_bracket(open, close, commas)
    }

    #[inline(always)]
    fn bracket_by_bracket(&mut self, open: u64, close: u64, commas: u64) -> (u64, u64) {
        let mut brackets = open | close;
        let mut found = 0;
        let mut rest = !0_u64;
        while brackets != 0 {
            let bit = brackets & brackets.wrapping_neg();
            if self.depth == 1 {
                found |= commas & rest & (bit - 1);
            }
            if open & bit != 0 {
                self.depth += 1;
            } else {
                self.depth -= 1;
                if self.depth == 0 {
                    return (found, bit);
                }
            }
            rest = !(bit | (bit - 1));
            brackets ^= bit;
        }
        if self.depth == 1 {
            found |= commas & rest;
        }
        (found, 0)
    }
}

struct Pass<'a, const SEEK: bool> {
    nesting: &'a mut Nesting,
    bytes: &'a [u8],
    most: u64,
}

impl<const SEEK: bool> Kernel for Pass<'_, SEEK> {
    type Output = Progress;

    #[inline(always)]
    fn run<B: Block>(self) -> Progress {
        let Self { nesting, bytes, most } = self;
        // A copy stays in registers; the caller's would be written back every block.
        let mut walk = Walk { state: *nesting, commas: 0, near: 0 };
        let (blocks, rest) = bytes.as_chunks::<WIDTH>();
        let mut straight = false;
        for (i, batch) in blocks.chunks(BATCH).enumerate() {
            walk.near = 0;
            let hit = if straight {
                walk.blocks::<B, true, SEEK>(batch, most)
            } else {
                walk.blocks::<B, false, SEEK>(batch, most)
            };
            if let Some(hit) = hit {
                return nesting.stop(i * BATCH * WIDTH, hit, walk.commas, most);
            }
            // Nearly none and nearly all can be guessed.
            straight = B::GATHERS && (BATCH / 8..BATCH * 7 / 8).contains(&walk.near);
        }
        if !rest.is_empty() {
            let mut padded = [b' '; WIDTH];
            padded[..rest.len()].copy_from_slice(rest);
            let before = walk.state.strings;
            if let Some(hit) = walk.blocks::<B, false, SEEK>(&[padded], most) {
                return nesting.stop(blocks.len() * WIDTH, hit, walk.commas, most);
            }
            walk.state.strings.unpad(before, rest);
        }
        *nesting = walk.state;
        Progress { consumed: bytes.len(), commas: walk.commas, stop: Stop::Exhausted }
    }
}

/// A pass under way.
#[derive(Clone, Copy)]
struct Walk {
    state: Nesting,
    commas: u64,
    /// How many blocks of the batch have come near depth 1.
    near: usize,
}

/// The block that ends a pass: its place, the commas found in it, and the closing bracket if it is in it.
struct Hit {
    start: usize,
    found: u64,
    end: u64,
}

impl Walk {
    #[inline(always)]
    fn blocks<B: Block, const STRAIGHT: bool, const SEEK: bool>(
        &mut self,
        blocks: &[[u8; WIDTH]],
        most: u64,
    ) -> Option<Hit> {
        // Locals, for the same reason as in `run`.
        let Self { mut state, mut commas, mut near } = *self;
        let mut hit = None;
        for (i, block) in blocks.iter().enumerate() {
            let (found, end) = state.block::<B, STRAIGHT>(block, &mut near);
            commas += u64::from(found.count_ones());
            if (SEEK && commas >= most) || end != 0 {
                hit = Some(Hit { start: i * WIDTH, found, end });
                break;
            }
        }
        *self = Self { state, commas, near };
        hit
    }
}

impl Nesting {
    /// Ends a pass inside the block that `hit` is in, of those that start at `base`. Brackets and commas that count
    /// are outside of strings, so after either of them nothing is carried on.
    fn stop(&mut self, base: usize, hit: Hit, commas: u64, most: u64) -> Progress {
        *self = Self::inside();
        let Hit { start, found, end } = hit;
        let start = base + start;
        if commas >= most {
            let mut found = found;
            for _ in 0..u64::from(found.count_ones()) - (commas - most) - 1 {
                found &= found - 1;
            }
            let consumed = start + found.trailing_zeros() as usize + 1;
            return Progress { consumed, commas: most, stop: Stop::Reached };
        }
        self.depth = 0;
        let consumed = start + end.trailing_zeros() as usize + 1;
        Progress { consumed, commas, stop: Stop::Closed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(bytes: &[u8], most: u64) -> Progress {
        let (mut inside, mut escaped, mut depth, mut commas) = (false, false, 1_u64, 0);
        for (i, &byte) in bytes.iter().enumerate() {
            let was_escaped = escaped;
            escaped = byte == b'\\' && !was_escaped;
            match byte {
                b'"' if !was_escaped => inside = !inside,
                _ if inside => {}
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                b',' if depth == 1 => commas += 1,
                _ => {}
            }
            if depth == 0 {
                return Progress { consumed: i + 1, commas, stop: Stop::Closed };
            }
            if commas == most {
                return Progress { consumed: i + 1, commas, stop: Stop::Reached };
            }
        }
        Progress { consumed: bytes.len(), commas, stop: Stop::Exhausted }
    }

    /// Bytes that are mostly structure, in strings and out of them.
    pub(crate) fn structure() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => Just(b','), 3 => Just(b'['), 2 => Just(b']'), 2 => Just(b'{'), 2 => Just(b'}'),
            2 => Just(b'"'), 1 => Just(b'\\'), 4 => Just(b'1'), 1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..400)
    }

    proptest! {
        #[test]
        fn agrees_with_a_loop(bytes in structure(), most in 1..40_u64) {
            for isa in Isa::available() {
                prop_assert_eq!(Nesting::inside().seek(isa, &bytes, most), naive(&bytes, most), "{:?}", isa);
                prop_assert_eq!(Nesting::inside().close(isa, &bytes), naive(&bytes, u64::MAX), "{:?}", isa);
            }
        }

        #[test]
        fn pieces_add_up(bytes in structure(), cuts in prop::collection::vec(0..400_usize, 0..5)) {
            let whole = naive(&bytes, u64::MAX);
            for isa in Isa::available() {
                let mut cuts: Vec<_> = cuts.iter().map(|&cut| cut.min(bytes.len())).collect();
                cuts.sort_unstable();
                cuts.push(bytes.len());
                let mut nesting = Nesting::inside();
                let (mut at, mut commas) = (0, 0);
                for cut in cuts {
                    let piece = nesting.close(isa, &bytes[at..cut]);
                    at += piece.consumed;
                    commas += piece.commas;
                    if piece.stop == Stop::Closed {
                        break;
                    }
                }
                prop_assert_eq!((at, commas), (whole.consumed, whole.commas), "{:?}", isa);
            }
        }
    }
}
