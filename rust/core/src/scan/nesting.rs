//! What stands directly inside a container, and where the container ends.

use super::{Block, Isa, Kernel, Strings, WIDTH};

/// A pass over the inside of an array or object that may go on from one piece of it to the next.
///
/// It trusts what it reads: whatever bracket closes the container, it ends there, and inside of something that
/// is inside, only brackets of that thing's own kind are followed. The others come in pairs between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nesting {
    strings: Strings,
    /// 1 directly inside, more inside of something that is inside, 0 once it has ended.
    depth: u64,
    /// Whether what is inside is an object; directly inside, whether the last thing was.
    is_object: bool,
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
        Self { strings: Strings::default(), depth: 1, is_object: true }
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

    /// The commas directly inside within a block, and the closing bracket's bit if it is in it. `OBJECTS` is
    /// `is_object`, known when this is compiled.
    ///
    /// Whether a block comes back to depth 1 decides how much there is to do for it. `STRAIGHT` does all of
    /// it for every block instead of asking: cheaper where the answer cannot be guessed.
    #[inline(always)]
    fn block<B: Block, const OBJECTS: bool, const STRAIGHT: bool>(
        &mut self,
        block: B,
        quotes: u64,
        near: &mut usize,
    ) -> (u64, u64) {
        let outside = !self.strings.mask::<B>(quotes);
        let depth = self.depth;
        if !STRAIGHT && depth == 1 && !block.fold().has_either(b'{', b'}') {
            *near += 1;
            return (block.eq(b',') & outside, 0);
        }
        let (opening, closing) = if OBJECTS { (b'{', b'}') } else { (b'[', b']') };
        let open = block.eq(opening) & outside;
        let close = block.eq(closing) & outside;
        let closes = u64::from(close.count_ones());
        let is_near = depth <= closes + 1;
        *near += usize::from(is_near);
        if !STRAIGHT && !is_near {
            // However they are ordered, the brackets of this block do not come back to depth 1.
            self.depth = depth + u64::from(open.count_ones()) - closes;
            return (0, 0);
        }
        let commas = block.eq(b',') & outside;
        let brackets = open | close;
        if B::GATHERS && brackets.count_ones() <= MOST_BRACKETS && depth < DEPTHS as u64 {
            // What is not a bracket of this block reads as one that opens, which changes nothing before it.
            let kinds = B::gather(open, brackets) | !0 << brackets.count_ones();
            let at = AT_DEPTH_1[depth as usize][(kinds & 0xff) as usize];
            let switches = B::scatter(u64::from(at), brackets);
            let inside = B::prefix_xor(switches) ^ u64::from(depth == 1).wrapping_neg();
            // Mostly there is nothing but commas between the things inside.
            let has_others = inside & !(commas | brackets) != 0
                && block.either(opening ^ 0x20, closing ^ 0x20) & outside & inside != 0;
            if !has_others && at & CLOSES == 0 {
                self.depth = depth + u64::from(open.count_ones()) - closes;
                return (commas & inside, 0);
            }
        }
        let slow = bracket_by_bracket(
            (depth, OBJECTS),
            block.either(b'{', b'[') & outside,
            block.either(b'}', b']') & outside,
            block.either(b'{', b'}'),
            commas,
        );
        (self.depth, self.is_object) = (slow.depth, slow.is_object);
        (slow.found, slow.end)
    }
}

struct Slow {
    depth: u64,
    is_object: bool,
    found: u64,
    end: u64,
}

/// By value: a reference to the state would keep it in memory for all the blocks that never come here.
#[inline(never)]
fn bracket_by_bracket(
    (mut depth, mut is_object): (u64, bool),
    open: u64,
    close: u64,
    curlies: u64,
    commas: u64,
) -> Slow {
    let mut brackets = open | close;
    let mut found = 0;
    let mut rest = !0_u64;
    while brackets != 0 {
        let bit = brackets & brackets.wrapping_neg();
        let is_curly = curlies & bit != 0;
        if depth == 1 {
            found |= commas & rest & (bit - 1);
            is_object = is_curly;
        }
        if is_object == is_curly {
            if open & bit != 0 {
                depth += 1;
            } else {
                depth -= 1;
                if depth == 0 {
                    return Slow { depth, is_object, found, end: bit };
                }
            }
        }
        rest = !(bit | (bit - 1));
        brackets ^= bit;
    }
    if depth == 1 {
        found |= commas & rest;
    }
    Slow { depth, is_object, found, end: 0 }
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
        let mut walk = Walk { bytes, state: *nesting, commas: 0, near: 0 };
        let (blocks, rest) = bytes.as_chunks::<WIDTH>();
        if let Some(first) = blocks.first() {
            // Of what was before these bytes, only as much is known as matters.
            let befores = &[shifted(walk.state.strings, first)];
            let (_, hit) =
                walk.batch::<B, SEEK>(Batch { start: 0, blocks: &blocks[..1], befores }, most, false);
            if let Some(hit) = hit {
                return nesting.stop(0, hit, walk.commas, most);
            }
        }
        let befores = bytes.get(WIDTH - 1..).unwrap_or_default().as_chunks::<WIDTH>().0;
        let mut straight = false;
        let mut at = 1;
        while at < blocks.len() {
            let to = blocks.len().min(at + BATCH);
            let batch =
                Batch { start: at * WIDTH, blocks: &blocks[at..to], befores: &befores[at - 1..to - 1] };
            walk.near = 0;
            let (taken, hit) = walk.batch::<B, SEEK>(batch, most, straight);
            at += taken;
            if let Some(hit) = hit {
                return nesting.stop(at * WIDTH, hit, walk.commas, most);
            }
            // Nearly none and nearly all can be guessed.
            straight = B::GATHERS && (BATCH / 4..BATCH * 7 / 8).contains(&walk.near);
        }
        if !rest.is_empty() {
            let start = bytes.len() - rest.len();
            let mut padded = [b' '; WIDTH];
            padded[..rest.len()].copy_from_slice(rest);
            let befores = &[shifted(walk.state.strings.behind(&bytes[..start]), &padded)];
            let (_, hit) = walk.batch::<B, SEEK>(Batch { start, blocks: &[padded], befores }, most, false);
            if let Some(hit) = hit {
                return nesting.stop(start, hit, walk.commas, most);
            }
        }
        walk.state.strings = walk.state.strings.behind(bytes);
        *nesting = walk.state;
        Progress { consumed: bytes.len(), commas: walk.commas, stop: Stop::Exhausted }
    }
}

/// The block one byte earlier, with a backslash first only if it escapes.
fn shifted(strings: Strings, block: &[u8; WIDTH]) -> [u8; WIDTH] {
    let mut before = [b' '; WIDTH];
    if strings.is_escaped() {
        before[0] = b'\\';
    }
    before[1..].copy_from_slice(&block[..WIDTH - 1]);
    before
}

/// Blocks, and for each the one that begins a byte earlier.
#[derive(Clone, Copy)]
struct Batch<'a> {
    start: usize,
    blocks: &'a [[u8; WIDTH]],
    befores: &'a [[u8; WIDTH]],
}

/// A pass under way.
#[derive(Clone, Copy)]
struct Walk<'a> {
    bytes: &'a [u8],
    /// Its escapes are those of the first byte, not of the one that was reached.
    state: Nesting,
    commas: u64,
    /// How many blocks of the batch have come near depth 1.
    near: usize,
}

/// What ends a pass: the commas found in the last block, and the closing bracket if it is in it.
#[derive(Clone, Copy)]
struct Hit {
    found: u64,
    end: u64,
}

impl Walk<'_> {
    /// How many blocks were passed whole, possibly not all, and what ended the pass in the next one.
    #[inline(always)]
    fn batch<B: Block, const SEEK: bool>(
        &mut self,
        batch: Batch<'_>,
        most: u64,
        straight: bool,
    ) -> (usize, Option<Hit>) {
        match (self.state.is_object, straight) {
            (true, false) => self.blocks::<B, true, false, SEEK>(batch, most),
            (true, true) => self.blocks::<B, true, true, SEEK>(batch, most),
            (false, false) => self.blocks::<B, false, false, SEEK>(batch, most),
            (false, true) => self.blocks::<B, false, true, SEEK>(batch, most),
        }
    }

    #[inline(always)]
    fn blocks<B: Block, const OBJECTS: bool, const STRAIGHT: bool, const SEEK: bool>(
        &mut self,
        batch: Batch<'_>,
        most: u64,
    ) -> (usize, Option<Hit>) {
        // Locals stay in registers; behind the reference they would be written back every block.
        let Self { bytes, mut state, mut commas, mut near } = *self;
        let mut hit = None;
        let mut taken = 0;
        for (block, before) in batch.blocks.iter().zip(batch.befores) {
            let block = B::load(block);
            let start = batch.start + taken * WIDTH;
            let quotes = state.strings.quotes_at(bytes, start, block, B::load(before));
            let (found, end) = state.block::<B, OBJECTS, STRAIGHT>(block, quotes, &mut near);
            commas += u64::from(found.count_ones());
            if (SEEK && commas >= most) || end != 0 {
                hit = Some(Hit { found, end });
                break;
            }
            taken += 1;
            if state.is_object != OBJECTS {
                break;
            }
        }
        *self = Self { bytes, state, commas, near };
        (taken, hit)
    }
}

impl Nesting {
    /// Ends a pass inside the block at `start`. Brackets and commas that count are outside of strings, so after
    /// either of them nothing is carried on.
    fn stop(&mut self, start: usize, hit: Hit, commas: u64, most: u64) -> Progress {
        *self = Self::inside();
        let Hit { found, end } = hit;
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
        let mut is_object = true;
        for (i, &byte) in bytes.iter().enumerate() {
            let was_escaped = escaped;
            escaped = byte == b'\\' && !was_escaped;
            let is_curly = matches!(byte, b'{' | b'}');
            match byte {
                b'"' if !was_escaped => inside = !inside,
                _ if inside => {}
                b'[' | b'{' if depth == 1 => (depth, is_object) = (2, is_curly),
                b'[' | b'{' if is_object == is_curly => depth += 1,
                b']' | b'}' if depth == 1 || is_object == is_curly => depth -= 1,
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
