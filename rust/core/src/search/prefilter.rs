//! Runs a regular expression only around a literal that each of its matches contains.
//!
//! The engine has such a prefilter for literals a match starts with, and for some others. This one serves the
//! patterns it has none for, like `[A-Z]\w+ .{0,40}timeout`.

use std::ops::Range;

use memchr::{memchr, memrchr};
use regex_automata::util::prefilter::Prefilter as Literals;
use regex_automata::{MatchKind, Span};
use regex_syntax::hir::literal::{Extractor, Seq, rank};
use regex_syntax::hir::{Class, Hir, HirKind};

/// Longer patterns are not looked into: the search for the best literal takes more than linear time.
const MAX_PATTERN: usize = 1024;

/// How many parts of a concatenation are tried as the beginning of a literal, and how many more are read on.
const MAX_PARTS: usize = 32;

/// More literals than this are not found much faster than the pattern itself.
const MAX_LITERALS: usize = 16;

/// What windows may cost beyond the progress they make before they are given up.
const CREDIT: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Prefilter {
    literals: Literals,
    reach: Reach,
}

/// How far from a literal the match that contains it can be.
#[derive(Debug, Clone, Copy)]
enum Reach {
    Bytes(usize),
    Line,
}

impl Prefilter {
    /// `None` where the engine does as well without.
    pub(super) fn new(hir: &Hir, pattern_len: usize) -> Option<Self> {
        if pattern_len > MAX_PATTERN || has_good_prefix(hir) {
            return None;
        }
        let reach = match hir.properties().maximum_len() {
            Some(longest) => Reach::Bytes(longest),
            None if !can_match_newline(hir) => Reach::Line,
            None => return None,
        };
        let literals = Literals::new(MatchKind::LeftmostFirst, &required(hir)?.literals)?;
        literals.is_fast().then_some(Self { literals, reach })
    }

    pub(super) fn windows<'a>(&'a self, data: &'a [u8], start: usize) -> Windows<'a> {
        Windows { prefilter: self, data, start, spent: 0, line_end: start }
    }
}

fn has_good_prefix(hir: &Hir) -> bool {
    Literals::from_hir_prefix(MatchKind::LeftmostFirst, hir)
        .is_some_and(|prefix| prefix.is_fast() && prefix.max_needle_len() >= 3)
}

fn can_match_newline(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => false,
        HirKind::Literal(literal) => literal.0.contains(&b'\n'),
        HirKind::Class(Class::Unicode(class)) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&'\n'))
        }
        HirKind::Class(Class::Bytes(class)) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&b'\n'))
        }
        HirKind::Repetition(repetition) => can_match_newline(&repetition.sub),
        HirKind::Capture(capture) => can_match_newline(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(can_match_newline),
    }
}

/// Literals of which every match contains at least one.
struct Required {
    literals: Vec<Vec<u8>>,
    /// Higher is rarer.
    score: u32,
}

impl Required {
    fn new(literals: Vec<Vec<u8>>) -> Option<Self> {
        let score = literals.iter().map(|literal| rarity(literal)).min()?;
        let is_selective =
            literals.len() <= MAX_LITERALS && literals.iter().all(|literal| literal.len() >= 2);
        is_selective.then_some(Self { literals, score })
    }

    fn rarer(self, other: Self) -> Self {
        if other.score > self.score { other } else { self }
    }
}

fn rarity(literal: &[u8]) -> u32 {
    literal.iter().map(|&byte| 256 - u32::from(rank(byte))).sum()
}

fn required(hir: &Hir) -> Option<Required> {
    match hir.kind() {
        HirKind::Literal(literal) => Required::new(vec![literal.0.to_vec()]),
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        HirKind::Concat(parts) => (0..parts.len().min(MAX_PARTS))
            .flat_map(|first| {
                let rest = parts.iter().skip(first).take(MAX_PARTS).cloned().collect();
                [prefixes(&Hir::concat(rest)), parts.get(first).and_then(required)]
            })
            .flatten()
            .reduce(Required::rarer),
        HirKind::Alternation(branches) => {
            let branches: Option<Vec<_>> = branches.iter().map(required).collect();
            Required::new(branches?.into_iter().flat_map(|branch| branch.literals).collect())
        }
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) | HirKind::Repetition(_) => None,
    }
}

/// Literals of which every match of `hir` starts with at least one.
fn prefixes(hir: &Hir) -> Option<Required> {
    let mut prefixes: Seq = Extractor::new().extract(hir);
    prefixes.make_inexact();
    prefixes.optimize_for_prefix_by_preference();
    Required::new(prefixes.literals()?.iter().map(|literal| literal.as_bytes().to_vec()).collect())
}

/// What became of a look for the next match.
pub(super) enum Step {
    Found(Range<usize>),
    End,
    /// The literals are so dense that the engine is faster without windows; no match starts before this byte.
    TooDense(usize),
}

/// Goes through one payload from literal to literal.
pub(super) struct Windows<'a> {
    prefilter: &'a Prefilter,
    data: &'a [u8],
    start: usize,
    /// Bytes of windows searched so far. Kept below the progress made, it keeps the whole search linear.
    spent: usize,
    line_end: usize,
}

impl Windows<'_> {
    /// The first match at or after `pos`, given what finds the first one within a span.
    pub(super) fn next(
        &mut self,
        mut pos: usize,
        find: &mut dyn FnMut(Range<usize>) -> Option<Range<usize>>,
    ) -> Step {
        while pos < self.data.len() {
            if self.spent > CREDIT.saturating_add(pos - self.start) {
                return Step::TooDense(pos);
            }
            let Some(literal) =
                self.prefilter.literals.find(self.data, Span { start: pos, end: self.data.len() })
            else {
                return Step::End;
            };
            let (window, last_start) = self.window(pos, literal.start);
            let found = find(window.clone());
            let searched = found.as_ref().map_or(window.end, |found| found.end);
            self.spent = self.spent.saturating_add(searched - window.start);
            match found {
                Some(found) if found.start <= last_start => return Step::Found(found),
                _ => pos = last_start + 1,
            }
        }
        Step::End
    }

    /// Where to search around the first literal after `pos`, and the last byte a match found there may start at.
    ///
    /// A match that starts at or before `literal` contains this literal or a later one, hence lies in the window
    /// whole. One that starts after it may reach out of the window, unless a window is a line.
    fn window(&mut self, pos: usize, literal: usize) -> (Range<usize>, usize) {
        match self.prefilter.reach {
            Reach::Bytes(longest) => {
                let start = literal.saturating_sub(longest).max(pos);
                let end = literal.saturating_add(longest).min(self.data.len());
                (start..end, literal)
            }
            Reach::Line => {
                let before = self.data.get(pos..literal).unwrap_or_default();
                let start = memrchr(b'\n', before).map_or(pos, |newline| pos + newline + 1);
                let end = self.line_end(literal);
                (start..end, end)
            }
        }
    }

    /// Remembered, or a line with many matches would be measured for each.
    fn line_end(&mut self, at: usize) -> usize {
        if at >= self.line_end {
            let rest = self.data.get(at..).unwrap_or_default();
            self.line_end = memchr(b'\n', rest).map_or(self.data.len(), |newline| at + newline);
        }
        self.line_end
    }
}
