//! JSON without the white space between its tokens, as it comes.

use super::same::Pieces;
use crate::error::Result;
use crate::scan::{Block, Isa, Kernel, Strings, WIDTH};

/// What `written` is without white space, for as long as that says the same: where two words would become one, and
/// where there is a backslash outside of a string, it ends, and is `unsure`.
pub(super) struct Minified<P> {
    written: P,
    /// What of it is still to be looked at.
    waiting: Vec<u8>,
    strings: Strings,
    /// The last byte that was kept, and whether there was white space behind it.
    last: u8,
    was_white: bool,
    pub(super) is_unsure: bool,
    isa: Isa,
}

impl<P> Minified<P> {
    pub(super) fn new(written: P, isa: Isa) -> Self {
        let (waiting, strings) = (Vec::new(), Strings::default());
        Self { written, waiting, strings, last: b' ', was_white: false, is_unsure: false, isa }
    }

    fn minify(&mut self, out: &mut Vec<u8>, is_last: bool) {
        let before = out.len();
        out.resize(before + self.waiting.len(), 0);
        let pass = Pass {
            content: &self.waiting,
            out: &mut out[before..],
            is_last,
            strings: self.strings,
            last: self.last,
            was_white: self.was_white,
            written: 0,
        };
        let end = self.isa.run(pass);
        (self.strings, self.last, self.was_white) = (end.strings, end.last, end.was_white);
        self.is_unsure = end.is_unsure;
        out.truncate(before + end.written);
        self.waiting.drain(..end.taken);
    }
}

impl<P: Pieces> Pieces for Minified<P> {
    fn pull(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        if self.is_unsure {
            return Ok(false);
        }
        let is_more = self.written.pull(&mut self.waiting)?;
        self.minify(out, !is_more);
        Ok(is_more && !self.is_unsure)
    }
}

struct Pass<'a> {
    content: &'a [u8],
    /// As long as the content.
    out: &'a mut [u8],
    is_last: bool,
    strings: Strings,
    last: u8,
    was_white: bool,
    written: usize,
}

struct End {
    taken: usize,
    written: usize,
    strings: Strings,
    last: u8,
    was_white: bool,
    is_unsure: bool,
}

impl Kernel for Pass<'_> {
    type Output = End;

    #[inline(always)]
    fn run<B: Block>(mut self) -> End {
        let (blocks, rest) = self.content.as_chunks::<WIDTH>();
        for (number, block) in blocks.iter().enumerate() {
            if !self.block::<B>(block, number * WIDTH, WIDTH) {
                return self.end(number * WIDTH, true);
            }
        }
        let taken = blocks.len() * WIDTH;
        if !self.is_last || rest.is_empty() {
            return self.end(taken, false);
        }
        let mut padded = [b' '; WIDTH];
        padded[..rest.len()].copy_from_slice(rest);
        let is_sure = self.block::<B>(&padded, taken, rest.len());
        self.end(taken + rest.len(), !is_sure)
    }
}

impl Pass<'_> {
    /// Takes the first `len` bytes of a block; `false` if it is not for this.
    #[inline(always)]
    fn block<B: Block>(&mut self, bytes: &[u8; WIDTH], start: usize, len: usize) -> bool {
        let block = B::load(bytes);
        let quotes = self.strings.quotes(block);
        let inside = self.strings.mask::<B>(quotes);
        if block.has(b'\\') && block.eq(b'\\') & !inside != 0 {
            return false;
        }
        let white = block.either(b' ', b'\n') | block.either(b'\t', b'\r');
        let mut kept = !white | inside;
        if len < WIDTH {
            kept &= (1 << len) - 1;
        }
        while kept != 0 {
            let first = kept.trailing_zeros() as usize;
            let run = (!(kept >> first)).trailing_zeros() as usize;
            if (self.was_white || first > 0) && is_word(self.last) && is_word(bytes[first]) {
                return false;
            }
            self.copy(start + first, run);
            self.last = bytes[first + run - 1];
            self.was_white = first + run < WIDTH;
            kept = if first + run < WIDTH { kept >> (first + run) << (first + run) } else { 0 };
        }
        self.was_white |= white & !inside == u64::MAX;
        true
    }

    #[inline(always)]
    fn copy(&mut self, from: usize, len: usize) {
        // A block is copied faster than so many bytes of it, and what is too much is overwritten by what follows.
        if let Some(block) = self.content[from..].first_chunk::<WIDTH>()
            && let Some(room) = self.out[self.written..].first_chunk_mut::<WIDTH>()
        {
            *room = *block;
        } else {
            self.out[self.written..self.written + len].copy_from_slice(&self.content[from..from + len]);
        }
        self.written += len;
    }

    fn end(self, taken: usize, is_unsure: bool) -> End {
        let Self { written, strings, last, was_white, .. } = self;
        End { taken, written, strings, last, was_white, is_unsure }
    }
}

/// Whether a byte between strings is of a number, `true`, `false`, `null`, or of what stands in such a one's place.
fn is_word(byte: u8) -> bool {
    !matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b':' | b'"' | b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that come in pieces of the given sizes, over and over.
    struct Cut<'a>(&'a [u8], Vec<usize>, usize);

    impl Pieces for Cut<'_> {
        fn pull(&mut self, out: &mut Vec<u8>) -> Result<bool> {
            let size = self.1[self.2 % self.1.len()].min(self.0.len());
            self.2 += 1;
            let (piece, rest) = self.0.split_at(size);
            out.extend_from_slice(piece);
            self.0 = rest;
            Ok(!rest.is_empty() || size > 0)
        }
    }

    fn minified(json: &[u8], sizes: Vec<usize>, isa: Isa) -> Option<Vec<u8>> {
        let mut pieces = Minified::new(Cut(json, sizes, 0), isa);
        let mut out = Vec::new();
        while pieces.pull(&mut out).unwrap() {}
        (!pieces.is_unsure).then_some(out)
    }

    fn naive(json: &[u8]) -> Option<Vec<u8>> {
        let (mut out, mut is_inside, mut is_escaped, mut was_white) = (Vec::new(), false, false, false);
        for &byte in json {
            let is_white = !is_inside && b" \t\r\n".contains(&byte);
            if !is_inside && byte == b'\\' {
                return None;
            }
            if !is_white {
                if was_white && !is_inside && out.last().is_some_and(|&last| is_word(last)) && is_word(byte) {
                    return None;
                }
                out.push(byte);
            }
            is_inside ^= byte == b'"' && !is_escaped;
            is_escaped = is_inside && byte == b'\\' && !is_escaped;
            was_white = is_white;
        }
        Some(out)
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            3 => Just(" ".to_owned()),
            2 => Just("\n        ".to_owned()),
            1 => Just(" ".repeat(70)),
            3 => Just("\"".to_owned()),
            2 => Just("\\\"".to_owned()),
            1 => Just("\\".to_owned()),
            3 => "[\\[\\]{},:]{1,3}",
            3 => "[a-z0-9.é\u{ff}\t\r]{1,9}",
            1 => "[a-z]{60,130}",
        ];
        prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn leaves_out_what_a_loop_leaves_out(json in bytes(), sizes in prop::collection::vec(1..200_usize, 1..4)) {
            for isa in Isa::available() {
                prop_assert_eq!(minified(&json, sizes.clone(), isa), naive(&json), "{:?}", isa);
            }
        }

        #[test]
        fn leaves_out_what_a_loop_leaves_out_of_json(json in crate::testing::json(), sizes in prop::collection::vec(1..200_usize, 1..4)) {
            let pretty = serde_json::to_string_pretty(&json).unwrap();
            for isa in Isa::available() {
                let found = minified(pretty.as_bytes(), sizes.clone(), isa);
                prop_assert_eq!(found, Some(json.to_string().into_bytes()), "{:?}", isa);
            }
        }
    }
}
