//! Removes the white space between JSON tokens from a stream.

use super::compare::Pieces;
use crate::error::Result;
use crate::scan::{Block, Isa, Kernel, StringState, WIDTH};

/// Streams `input` without the white space between tokens. Where that could change the meaning, it ends and
/// `is_unsure` is set: where two words would become one, and at a backslash outside strings.
pub(super) struct Minifier<P> {
    input: P,
    /// Bytes of the input that are not processed yet.
    pending: Vec<u8>,
    strings: StringState,
    /// The last byte written, and whether white space followed it.
    last: u8,
    was_white: bool,
    pub(super) is_unsure: bool,
    isa: Isa,
}

impl<P> Minifier<P> {
    pub(super) fn new(input: P, isa: Isa) -> Self {
        let (pending, strings) = (Vec::new(), StringState::default());
        Self { input, pending, strings, last: b' ', was_white: false, is_unsure: false, isa }
    }

    fn minify(&mut self, out: &mut Vec<u8>, is_last: bool) {
        let before = out.len();
        out.resize(before + self.pending.len(), 0);
        let pass = Pass {
            content: &self.pending,
            out: &mut out[before..],
            is_last,
            strings: self.strings,
            last: self.last,
            was_white: self.was_white,
            out_len: 0,
        };
        let end = self.isa.run(pass);
        (self.strings, self.last, self.was_white) = (end.strings, end.last, end.was_white);
        self.is_unsure = end.is_unsure;
        out.truncate(before + end.out_len);
        self.pending.drain(..end.consumed);
    }
}

impl<P: Pieces> Pieces for Minifier<P> {
    fn pull(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        if self.is_unsure {
            return Ok(false);
        }
        let is_more = self.input.pull(&mut self.pending)?;
        self.minify(out, !is_more);
        Ok(is_more && !self.is_unsure)
    }
}

struct Pass<'a> {
    content: &'a [u8],
    /// As long as `content`.
    out: &'a mut [u8],
    is_last: bool,
    strings: StringState,
    last: u8,
    was_white: bool,
    out_len: usize,
}

struct PassEnd {
    consumed: usize,
    out_len: usize,
    strings: StringState,
    last: u8,
    was_white: bool,
    is_unsure: bool,
}

impl Kernel for Pass<'_> {
    type Output = PassEnd;

    #[inline(always)]
    fn run<B: Block>(mut self) -> PassEnd {
        let (blocks, rest) = self.content.as_chunks::<WIDTH>();
        for (number, block) in blocks.iter().enumerate() {
            if !self.block::<B>(block, number * WIDTH, WIDTH) {
                return self.end(number * WIDTH, true);
            }
        }
        let consumed = blocks.len() * WIDTH;
        if !self.is_last || rest.is_empty() {
            return self.end(consumed, false);
        }
        let mut padded = [b' '; WIDTH];
        padded[..rest.len()].copy_from_slice(rest);
        let is_sure = self.block::<B>(&padded, consumed, rest.len());
        self.end(consumed + rest.len(), !is_sure)
    }
}

impl Pass<'_> {
    /// Minifies the first `len` bytes of a block; `false` if the result would be unsure.
    #[inline(always)]
    fn block<B: Block>(&mut self, bytes: &[u8; WIDTH], start: usize, len: usize) -> bool {
        let block = B::load(bytes);
        let quotes = self.strings.quotes(block);
        let inside = self.strings.inside_mask::<B>(quotes);
        if block.has(b'\\') && block.eq(b'\\') & !inside != 0 {
            return false;
        }
        let white = block.either(b' ', b'\n') | block.either(b'\t', b'\r');
        let mut keep = !white | inside;
        if len < WIDTH {
            keep &= (1 << len) - 1;
        }
        while keep != 0 {
            let first = keep.trailing_zeros() as usize;
            let run = (!(keep >> first)).trailing_zeros() as usize;
            if (self.was_white || first > 0) && is_word(self.last) && is_word(bytes[first]) {
                return false;
            }
            self.copy(start + first, run);
            self.last = bytes[first + run - 1];
            self.was_white = first + run < WIDTH;
            keep = if first + run < WIDTH { keep >> (first + run) << (first + run) } else { 0 };
        }
        self.was_white |= white & !inside == u64::MAX;
        true
    }

    #[inline(always)]
    fn copy(&mut self, from: usize, len: usize) {
        // A whole block is copied faster than `len` bytes, and the excess is overwritten by the next copy.
        if let Some(block) = self.content[from..].first_chunk::<WIDTH>()
            && let Some(room) = self.out[self.out_len..].first_chunk_mut::<WIDTH>()
        {
            *room = *block;
        } else {
            self.out[self.out_len..self.out_len + len].copy_from_slice(&self.content[from..from + len]);
        }
        self.out_len += len;
    }

    fn end(self, consumed: usize, is_unsure: bool) -> PassEnd {
        let Self { out_len, strings, last, was_white, .. } = self;
        PassEnd { consumed, out_len, strings, last, was_white, is_unsure }
    }
}

/// Whether a byte outside strings belongs to a number or literal, valid or not.
fn is_word(byte: u8) -> bool {
    !matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b':' | b'"' | b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Yields bytes in pieces of the given sizes, over and over.
    struct Chunked<'a>(&'a [u8], Vec<usize>, usize);

    impl Pieces for Chunked<'_> {
        fn pull(&mut self, out: &mut Vec<u8>) -> Result<bool> {
            let size = self.1[self.2 % self.1.len()].min(self.0.len());
            self.2 += 1;
            let (piece, rest) = self.0.split_at(size);
            out.extend_from_slice(piece);
            self.0 = rest;
            Ok(!rest.is_empty() || size > 0)
        }
    }

    fn minify(json: &[u8], sizes: Vec<usize>, isa: Isa) -> Option<Vec<u8>> {
        let mut pieces = Minifier::new(Chunked(json, sizes, 0), isa);
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
        fn matches_a_byte_loop(json in bytes(), sizes in prop::collection::vec(1..200_usize, 1..4)) {
            for isa in Isa::available() {
                prop_assert_eq!(minify(&json, sizes.clone(), isa), naive(&json), "{:?}", isa);
            }
        }

        #[test]
        fn minifies_pretty_json(json in crate::testing::json(), sizes in prop::collection::vec(1..200_usize, 1..4)) {
            let pretty = serde_json::to_string_pretty(&json).unwrap();
            for isa in Isa::available() {
                let found = minify(pretty.as_bytes(), sizes.clone(), isa);
                prop_assert_eq!(found, Some(json.to_string().into_bytes()), "{:?}", isa);
            }
        }
    }
}
