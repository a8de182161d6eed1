//! Counts what is directly inside a container, and finds its end.

use super::{Block, Isa, Kernel, StringState, WIDTH};

/// State of a scan through the inside of an array or object. It can continue from one piece to the next.
///
/// Brackets are not validated: any closing bracket ends the container, and inside a nested value only
/// brackets of its own kind are counted. The others come in pairs between them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nesting {
    strings: StringState,
    /// 1 directly inside, more inside nested values, 0 after the end.
    depth: u64,
    /// Whether the nested value is an object; at depth 1, whether the last one was.
    is_object: bool,
}

impl PartialEq for Nesting {
    fn eq(&self, other: &Self) -> bool {
        // At depth 1, the kind of the last nested value changes no result.
        self.strings == other.strings
            && self.depth == other.depth
            && (self.depth == 1 || self.is_object == other.is_object)
    }
}

impl Eq for Nesting {}

/// Blocks that are scanned before the choice of `STRAIGHT` is made again.
const BATCH_BLOCKS: usize = 32;

const MAX_BRACKETS: u32 = 8;
const DEPTHS: usize = 16;
const CLOSES: u16 = 1 << 15;

/// For a depth and up to eight brackets (a set bit opens): a mask of the brackets that enter or leave depth
/// 1, and `CLOSES` if depth 0 is reached.
static AT_DEPTH_1: [[u16; 256]; DEPTHS] = {
    let mut table = [[0; 256]; DEPTHS];
    let mut depth = 1;
    while depth < DEPTHS {
        let mut kinds = 0;
        while kinds < 256 {
            let (mut now, mut i, mut entry) = (depth, 0, 0);
            while i < MAX_BRACKETS {
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

/// Why a scan stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The bytes ran out.
    Exhausted,
    /// The container's closing bracket was the last byte consumed.
    Closed,
    /// The requested comma was the last byte consumed.
    Reached,
}

/// Result of scanning some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) consumed: usize,
    /// Commas directly inside, the requested one included.
    pub(crate) commas: u64,
    pub(crate) stop: Stop,
}

impl Nesting {
    /// Returns the state right after the opening bracket, or right after a comma directly inside.
    pub(crate) fn inside() -> Self {
        Self { strings: StringState::default(), depth: 1, is_object: true }
    }

    /// Returns the state `depth - 1` levels deeper, in containers of one kind that are nested in each other.
    pub(crate) fn within(strings: StringState, depth: u64, is_object: bool) -> Self {
        Self { strings, depth, is_object }
    }

    /// Whether the next byte is directly inside the container.
    pub(crate) fn is_directly_inside(&self) -> bool {
        self.depth == 1 && !self.strings.is_inside()
    }

    /// Returns the position of the last comma in `bytes` that is directly inside the container. The bytes are valid JSON,
    /// and `self` is the state after them. `None` if the comma is not among the last `limit` bytes.
    pub(crate) fn last_comma(&self, bytes: &[u8], limit: usize) -> Option<usize> {
        let (mut inside, mut depth, mut is_object) = (self.strings.is_inside(), self.depth, self.is_object);
        for at in (bytes.len().saturating_sub(limit)..bytes.len()).rev() {
            let byte = bytes[at];
            let is_curly = matches!(byte, b'{' | b'}');
            match byte {
                b'"' => {
                    let run = bytes[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
                    if run > 0 && run == at {
                        // Whether the first backslash is escaped is not known.
                        return None;
                    }
                    inside ^= run % 2 == 0;
                }
                _ if inside => {}
                b',' if depth == 1 => return Some(at),
                b']' | b'}' if depth == 1 => (depth, is_object) = (2, is_curly),
                b']' | b'}' if is_object == is_curly => depth += 1,
                b'[' | b'{' if depth == 1 => return None,
                b'[' | b'{' if is_object == is_curly => depth -= 1,
                _ => {}
            }
        }
        None
    }

    /// Scans `bytes` up to the closing bracket.
    #[inline]
    pub(crate) fn close(&mut self, isa: Isa, bytes: &[u8]) -> Progress {
        isa.run(Pass::<false> { nesting: self, bytes, target: u64::MAX })
    }

    /// Scans `bytes` up to the closing bracket or the comma number `target`, whichever is first.
    #[inline]
    pub(crate) fn seek(&mut self, isa: Isa, bytes: &[u8], target: u64) -> Progress {
        isa.run(Pass::<true> { nesting: self, bytes, target })
    }

    /// Returns the mask of the commas directly inside within a block, and the closing bracket's bit if it is
    /// in the block. `OBJECTS` is `is_object` as a compile-time constant.
    ///
    /// Most of the work is only needed if a block returns to depth 1. `STRAIGHT` does it for every block
    /// instead of testing, which is cheaper where the branch is hard to predict.
    #[inline(always)]
    fn block<B: Block, const OBJECTS: bool, const STRAIGHT: bool>(
        &mut self,
        block: B,
        quotes: u64,
        tally: &mut Tally,
    ) -> (u64, u64) {
        let outside = !self.strings.inside_mask::<B>(quotes);
        let depth = self.depth;
        if !STRAIGHT && depth == 1 && !block.fold().has_either(b'{', b'}') {
            tally.near += 1;
            return tally.count(block.eq(b',') & outside, 0);
        }
        let (opening, closing) = if OBJECTS { (b'{', b'}') } else { (b'[', b']') };
        let open = block.eq(opening) & outside;
        let close = block.eq(closing) & outside;
        let closes = u64::from(close.count_ones());
        let is_near = depth <= closes + 1;
        // Counted only where it matters: the counter is in memory.
        if STRAIGHT || is_near {
            tally.near += usize::from(is_near);
        } else {
            // In whatever order, the brackets of this block do not return to depth 1.
            self.depth = depth + u64::from(open.count_ones()) - closes;
            return (0, 0);
        }
        let commas = block.eq(b',') & outside;
        let brackets = open | close;
        let found = if B::HAS_GATHER {
            switches_by_table::<B>(depth, open, brackets)
                .map(|switches| (switches, depth + u64::from(open.count_ones()) - closes))
        } else {
            switches_one_by_one(depth, open, brackets)
        };
        if let Some((switches, depth_after)) = found {
            let inside = B::prefix_xor(switches) ^ u64::from(depth == 1).wrapping_neg();
            // Usually there are only commas between the nested values.
            let has_others = inside & !(commas | brackets) != 0
                && block.either(opening ^ 0x20, closing ^ 0x20) & outside & inside != 0;
            if !has_others {
                self.depth = depth_after;
                return tally.count(commas & inside, 0);
            }
        }
        let other_open = block.eq(opening ^ 0x20) & outside;
        let other_close = block.eq(closing ^ 0x20) & outside;
        let curly = if OBJECTS { brackets } else { other_open | other_close };
        let scan = scan_brackets((depth, OBJECTS), open | other_open, close | other_close, curly, commas);
        (self.depth, self.is_object) = (scan.depth, scan.is_object);
        tally.count(scan.commas_inside, scan.end)
    }
}

/// Returns the mask of the brackets that enter or leave depth 1. `None` if depth 0 is reached, or if the table
/// does not suffice.
#[inline(always)]
fn switches_by_table<B: Block>(depth: u64, open: u64, brackets: u64) -> Option<u64> {
    if brackets.count_ones() > MAX_BRACKETS || depth >= DEPTHS as u64 {
        return None;
    }
    // Unused bits read as opening brackets, which change nothing before them.
    let kinds = B::gather(open, brackets) | !0 << brackets.count_ones();
    let at = AT_DEPTH_1[depth as usize][(kinds & 0xff) as usize];
    (at & CLOSES == 0).then(|| B::scatter(u64::from(at), brackets))
}

/// Like [`switches_by_table`], for any number of brackets. Also returns the depth after them.
#[inline(always)]
fn switches_one_by_one(mut depth: u64, open: u64, mut brackets: u64) -> Option<(u64, u64)> {
    let mut switches = 0;
    while brackets != 0 {
        let bit = brackets & brackets.wrapping_neg();
        brackets ^= bit;
        let opens = u64::from(open & bit != 0);
        let outer = depth + opens - 1;
        if outer == 0 {
            return None;
        }
        switches |= if outer == 1 { bit } else { 0 };
        depth = outer + opens;
    }
    Some((switches, depth))
}

struct BracketScan {
    depth: u64,
    is_object: bool,
    commas_inside: u64,
    end: u64,
}

/// Takes and returns the state by value: a reference would keep it in memory for all the blocks that never
/// come here.
#[inline(never)]
fn scan_brackets(
    (mut depth, mut is_object): (u64, bool),
    open: u64,
    close: u64,
    curlies: u64,
    commas: u64,
) -> BracketScan {
    let mut brackets = open | close;
    let mut commas_inside = 0;
    let mut rest = !0_u64;
    while brackets != 0 {
        let bit = brackets & brackets.wrapping_neg();
        let is_curly = curlies & bit != 0;
        if depth == 1 {
            commas_inside |= commas & rest & (bit - 1);
            is_object = is_curly;
        }
        if is_object == is_curly {
            if open & bit != 0 {
                depth += 1;
            } else {
                depth -= 1;
                if depth == 0 {
                    return BracketScan { depth, is_object, commas_inside, end: bit };
                }
            }
        }
        rest = !(bit | (bit - 1));
        brackets ^= bit;
    }
    if depth == 1 {
        commas_inside |= commas & rest;
    }
    BracketScan { depth, is_object, commas_inside, end: 0 }
}

struct Pass<'a, const SEEK: bool> {
    nesting: &'a mut Nesting,
    bytes: &'a [u8],
    target: u64,
}

impl<const SEEK: bool> Kernel for Pass<'_, SEEK> {
    type Output = Progress;

    #[inline(always)]
    fn run<B: Block>(self) -> Progress {
        let Self { nesting, bytes, target } = self;
        let mut walk = Walk { bytes, state: *nesting, tally: Tally::default() };
        let (blocks, rest) = bytes.as_chunks::<WIDTH>();
        if let Some(first) = blocks.first() {
            // Of the bytes before these, only a pending escape matters.
            let befores = &[shifted(walk.state.strings, first)];
            let (_, hit) =
                walk.batch::<B, SEEK>(Batch { start: 0, blocks: &blocks[..1], befores }, target, false);
            if let Some(hit) = hit {
                return nesting.stop(0, hit, walk.tally.commas, target);
            }
        }
        let befores = bytes.get(WIDTH - 1..).unwrap_or_default().as_chunks::<WIDTH>().0;
        let mut straight = false;
        let mut at = 1;
        while at < blocks.len() {
            let to = blocks.len().min(at + BATCH_BLOCKS);
            let batch =
                Batch { start: at * WIDTH, blocks: &blocks[at..to], befores: &befores[at - 1..to - 1] };
            walk.tally.near = 0;
            let (consumed, hit) = walk.batch::<B, SEEK>(batch, target, straight);
            at += consumed;
            if let Some(hit) = hit {
                return nesting.stop(at * WIDTH, hit, walk.tally.commas, target);
            }
            // Nearly none and nearly all can be predicted.
            straight = B::HAS_GATHER && (BATCH_BLOCKS / 4..BATCH_BLOCKS * 7 / 8).contains(&walk.tally.near);
        }
        if !rest.is_empty() {
            let start = bytes.len() - rest.len();
            let mut padded = [b' '; WIDTH];
            padded[..rest.len()].copy_from_slice(rest);
            let befores = &[shifted(walk.state.strings.after(&bytes[..start]), &padded)];
            let (_, hit) = walk.batch::<B, SEEK>(Batch { start, blocks: &[padded], befores }, target, false);
            if let Some(hit) = hit {
                return nesting.stop(start, hit, walk.tally.commas, target);
            }
        }
        walk.state.strings = walk.state.strings.after(bytes);
        *nesting = walk.state;
        Progress { consumed: bytes.len(), commas: walk.tally.commas, stop: Stop::Exhausted }
    }
}

/// Returns the block that starts one byte earlier. Its first byte is a backslash only if that escapes the
/// next one.
fn shifted(strings: StringState, block: &[u8; WIDTH]) -> [u8; WIDTH] {
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

/// A scan in progress.
#[derive(Clone, Copy)]
struct Walk<'a> {
    bytes: &'a [u8],
    /// Its escape state is that before the first byte, not that before the current block.
    state: Nesting,
    tally: Tally,
}

/// Counters of a scan.
#[derive(Clone, Copy, Default)]
struct Tally {
    commas: u64,
    /// How many blocks of the batch came near depth 1.
    near: usize,
}

impl Tally {
    /// Counts the commas of a block, and returns what was found in it. It is not called for blocks that stay away
    /// from depth 1: counting bits takes four instructions on aarch64, also where there are none.
    #[inline(always)]
    fn count(&mut self, commas_inside: u64, end: u64) -> (u64, u64) {
        self.commas += u64::from(commas_inside.count_ones());
        (commas_inside, end)
    }
}

/// What ends a scan: the commas found in the last block, and the closing bracket if it is in it.
#[derive(Clone, Copy)]
struct Hit {
    commas_inside: u64,
    end: u64,
}

impl Walk<'_> {
    /// Scans a batch. Returns how many blocks were consumed whole, possibly not all, and what ended the scan
    /// in the next one.
    #[inline(always)]
    fn batch<B: Block, const SEEK: bool>(
        &mut self,
        batch: Batch<'_>,
        target: u64,
        straight: bool,
    ) -> (usize, Option<Hit>) {
        match (self.state.is_object, straight) {
            (true, false) => self.blocks::<B, true, false, SEEK>(batch, target),
            (true, true) => self.blocks::<B, true, true, SEEK>(batch, target),
            (false, false) => self.blocks::<B, false, false, SEEK>(batch, target),
            (false, true) => self.blocks::<B, false, true, SEEK>(batch, target),
        }
    }

    #[inline(always)]
    fn blocks<B: Block, const OBJECTS: bool, const STRAIGHT: bool, const SEEK: bool>(
        &mut self,
        batch: Batch<'_>,
        target: u64,
    ) -> (usize, Option<Hit>) {
        // Locals stay in registers; through the reference they would be written back for every block.
        let Self { bytes, mut state, mut tally } = *self;
        let mut hit = None;
        let mut consumed = 0;
        for (block, before) in batch.blocks.iter().zip(batch.befores) {
            let block = B::load(block);
            let start = batch.start + consumed * WIDTH;
            let quotes = state.strings.quotes_at(bytes, start, block, before);
            let (commas_inside, end) = state.block::<B, OBJECTS, STRAIGHT>(block, quotes, &mut tally);
            if (SEEK && tally.commas >= target) || end != 0 {
                hit = Some(Hit { commas_inside, end });
                break;
            }
            consumed += 1;
            if state.is_object != OBJECTS {
                break;
            }
        }
        *self = Self { bytes, state, tally };
        (consumed, hit)
    }
}

impl Nesting {
    /// Ends a scan inside the block at `start`. Counted brackets and commas are outside strings, so no string
    /// state is carried on.
    fn stop(&mut self, start: usize, hit: Hit, commas: u64, target: u64) -> Progress {
        *self = Self::inside();
        let Hit { commas_inside, end } = hit;
        if commas >= target {
            let mut commas_inside = commas_inside;
            for _ in 0..u64::from(commas_inside.count_ones()) - (commas - target) - 1 {
                commas_inside &= commas_inside - 1;
            }
            let consumed = start + commas_inside.trailing_zeros() as usize + 1;
            return Progress { consumed, commas: target, stop: Stop::Reached };
        }
        self.depth = 0;
        let consumed = start + end.trailing_zeros() as usize + 1;
        Progress { consumed, commas, stop: Stop::Closed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::json;
    use proptest::prelude::*;

    fn naive(bytes: &[u8], target: u64) -> Progress {
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
            if commas == target {
                return Progress { consumed: i + 1, commas, stop: Stop::Reached };
            }
        }
        Progress { consumed: bytes.len(), commas, stop: Stop::Exhausted }
    }

    /// Bytes that are mostly structure, inside and outside strings.
    pub(crate) fn structure() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => Just(b','), 3 => Just(b'['), 2 => Just(b']'), 2 => Just(b'{'), 2 => Just(b'}'),
            2 => Just(b'"'), 1 => Just(b'\\'), 4 => Just(b'1'), 1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..400)
    }

    proptest! {
        #[test]
        fn matches_a_byte_loop(bytes in structure(), target in 1..40_u64) {
            for isa in Isa::available() {
                prop_assert_eq!(Nesting::inside().seek(isa, &bytes, target), naive(&bytes, target), "{:?}", isa);
                prop_assert_eq!(Nesting::inside().close(isa, &bytes), naive(&bytes, u64::MAX), "{:?}", isa);
            }
        }

        #[test]
        fn the_last_comma_is_found_from_the_end(
            value in json(), pretty in any::<bool>(), from in any::<prop::sample::Index>(),
            to in any::<prop::sample::Index>(), limit in 0..200_usize,
        ) {
            let value = serde_json::json!({"a,\\\"": value, "b": [[1, {}], "\\"], "c": {"d": [1, 2], "e": value}});
            let data = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
            let data = &data[1..data.len() - 1];
            let to = to.index(data.len() + 1);
            let from = from.index(to + 1);
            let (mut inside, mut escaped, mut depth, mut comma) = (false, false, 1, None);
            for (at, &byte) in data[..to].iter().enumerate() {
                let was_escaped = escaped;
                escaped = byte == b'\\' && !was_escaped;
                match byte {
                    b'"' if !was_escaped => inside = !inside,
                    _ if inside => {}
                    b'[' | b'{' => depth += 1,
                    b']' | b'}' => depth -= 1,
                    b',' if depth == 1 => comma = Some(at),
                    _ => {}
                }
            }
            let mut nesting = Nesting::inside();
            nesting.close(Isa::detect(), &data[..to]);
            let expected = comma.filter(|&comma| comma + limit >= to);
            prop_assert_eq!(nesting.last_comma(&data[..to], limit), expected);
            // Without the bytes before a run of backslashes, it may not be found.
            let found = nesting.last_comma(&data[from..to], limit);
            let is_cut = from > 0 && data[from - 1] == b'\\' || data.get(from) == Some(&b'\\');
            prop_assert!(found == expected.and_then(|at| at.checked_sub(from)) || found.is_none() && is_cut);
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
