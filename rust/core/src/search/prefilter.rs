//! Runs a regular expression only around a literal that each of its matches contains.
//!
//! The engine does this by itself for literals a match starts with, and for few others: on a pattern like
//! `[a-z]+ing` or `"[^"]*timeout[^"]*"` it is twenty times slower than the search for the literal.

use std::cmp::Reverse;
use std::ops::Range;

use memchr::{memchr_iter, memchr3_iter};
use regex_automata::util::prefilter::Prefilter as Literals;
use regex_automata::{MatchKind, Span};
use regex_syntax::hir::literal::{Extractor, rank};
use regex_syntax::hir::{Class, Hir, HirKind};

/// Longest pattern that is analysed: the search for the best literal takes more than linear time.
const MAX_PATTERN_BYTES: usize = 1024;

/// Parts of a concatenation that are tried as the beginning of a literal, and parts that are read from each.
const MAX_PARTS: usize = 32;

/// More literals than this are not found much faster than the pattern itself.
const MAX_LITERALS: usize = 16;

/// Common ends of words, strings and lines. Windows between them are found much faster than matches.
const DELIMITERS: [u8; 3] = [b'\n', b'"', b' '];

/// Bytes that windows may cost beyond the progress they make before they are given up.
const CREDIT_BYTES: usize = if cfg!(test) { 64 } else { 64 << 10 };

/// Literal sets that are kept to choose from once the payload is known.
const MAX_CANDIDATES: usize = 6;

/// Bytes of the payload that are sampled to choose.
const SAMPLE_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Prefilter {
    /// Literal sets, each of which suffices. Those that are rarer in general come first.
    candidates: Vec<Literals>,
    reach: Reach,
}

/// How far a match can reach from a literal in it.
#[derive(Debug, Clone, Copy)]
enum Reach {
    Bytes(usize),
    /// Up to where it would contain more than `max_count` of these bytes.
    Delimited {
        delimiters: [u8; 3],
        max_count: usize,
    },
}

impl Prefilter {
    /// Returns `None` if the engine is as fast without one.
    pub(super) fn new(hir: &Hir, pattern_len: usize) -> Option<Self> {
        if pattern_len > MAX_PATTERN_BYTES || hir.properties().is_alternation_literal() {
            return None;
        }
        let reach = Reach::of(hir)?;
        let mut required = required(hir);
        required.sort_by_key(|required| Reverse(required.rarity));
        let candidates: Vec<_> = required.iter().filter_map(Required::finder).take(MAX_CANDIDATES).collect();
        (!candidates.is_empty()).then_some(Self { candidates, reach })
    }

    /// Chooses the literals that are rarest in a sample of the payload: `svc-` may be in every line.
    pub(super) fn windows<'a>(&'a self, data: &'a [u8], start: usize) -> Option<Windows<'a>> {
        let rest = data.get(start..)?;
        let sample = rest.get(rest.len().saturating_sub(SAMPLE_BYTES) / 2..)?;
        let sample = sample.get(..SAMPLE_BYTES).unwrap_or(sample);
        let literals = self.candidates.iter().min_by_key(|literals| count(literals, sample))?;
        Some(Windows { literals, reach: self.reach, data, start, spent: 0, end: start })
    }
}

fn count(literals: &Literals, sample: &[u8]) -> usize {
    let mut span = Span::from(0..sample.len());
    let next = || {
        let found = literals.find(sample, span)?;
        span.start = found.end;
        Some(found)
    };
    std::iter::from_fn(next).count()
}

impl Reach {
    fn of(hir: &Hir) -> Option<Self> {
        if let Some(longest) = hir.properties().maximum_len() {
            return Some(Self::Bytes(longest));
        }
        let (max_count, first) = DELIMITERS
            .iter()
            .filter_map(|&byte| Some((max_occurrences(byte, hir)?, byte)))
            .min_by_key(|best| best.0)?;
        // Where a match contains none of them, the nearest of several ends it.
        let delimiters = DELIMITERS
            .map(|byte| if max_count == 0 && max_occurrences(byte, hir) == Some(0) { byte } else { first });
        Some(Self::Delimited { delimiters, max_count })
    }
}

/// Returns how often `byte`, which is ASCII, can be in a match; `None` if there is no bound.
fn max_occurrences(byte: u8, hir: &Hir) -> Option<usize> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(0),
        HirKind::Literal(literal) => Some(memchr_iter(byte, &literal.0).count()),
        HirKind::Class(class) => Some(usize::from(class_contains(class, byte))),
        HirKind::Capture(capture) => max_occurrences(byte, &capture.sub),
        HirKind::Repetition(repetition) => match (max_occurrences(byte, &repetition.sub)?, repetition.max) {
            (0, _) => Some(0),
            (count, max) => count.checked_mul(usize::try_from(max?).ok()?),
        },
        HirKind::Concat(parts) => {
            parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(max_occurrences(byte, part)?))
        }
        HirKind::Alternation(branches) => {
            branches.iter().try_fold(0, |max: usize, branch| Some(max.max(max_occurrences(byte, branch)?)))
        }
    }
}

fn class_contains(class: &Class, byte: u8) -> bool {
    match class {
        Class::Unicode(class) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&char::from(byte)))
        }
        Class::Bytes(class) => class.iter().any(|range| (range.start()..=range.end()).contains(&byte)),
    }
}

/// Literals of which every match contains at least one.
struct Required {
    literals: Vec<Vec<u8>>,
    rarity: u32,
}

impl Required {
    fn new(literals: Vec<Vec<u8>>) -> Option<Self> {
        let is_selective =
            literals.len() <= MAX_LITERALS && literals.iter().all(|literal| literal.len() >= 2);
        let rarity = literals.iter().map(|literal| rarity(literal)).min()?;
        is_selective.then_some(Self { literals, rarity })
    }

    fn finder(&self) -> Option<Literals> {
        Literals::new(MatchKind::LeftmostFirst, &self.literals).filter(Literals::is_fast)
    }
}

fn rarity(literal: &[u8]) -> u32 {
    literal.iter().map(|&byte| 256 - u32::from(rank(byte))).sum()
}

fn required(hir: &Hir) -> Vec<Required> {
    match hir.kind() {
        HirKind::Literal(literal) => Required::new(vec![literal.0.to_vec()]).into_iter().collect(),
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        HirKind::Concat(parts) => parts
            .iter()
            .take(MAX_PARTS)
            .enumerate()
            .flat_map(|(first, part)| {
                let rest = parts.iter().skip(first).take(MAX_PARTS).cloned().collect();
                required(part).into_iter().chain(prefixes(&Hir::concat(rest)))
            })
            .collect(),
        HirKind::Alternation(branches) => required_by_all(branches).into_iter().collect(),
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) | HirKind::Repetition(_) => Vec::new(),
    }
}

/// Returns the rarest literals of every branch.
fn required_by_all(branches: &[Hir]) -> Option<Required> {
    let rarest =
        branches.iter().map(|branch| required(branch).into_iter().max_by_key(|required| required.rarity));
    let rarest: Vec<_> = rarest.collect::<Option<_>>()?;
    Required::new(rarest.into_iter().flat_map(|required| required.literals).collect())
}

/// Returns literals of which every match of `hir` starts with at least one.
fn prefixes(hir: &Hir) -> Option<Required> {
    let mut prefixes = Extractor::new().extract(hir);
    prefixes.make_inexact();
    prefixes.optimize_for_prefix_by_preference();
    Required::new(prefixes.literals()?.iter().map(|literal| literal.as_bytes().to_vec()).collect())
}

/// Result of looking for the next match.
pub(super) enum Step {
    Found(Range<usize>),
    End,
    /// The literals are so dense that the engine is faster without windows; no match starts before this byte.
    TooDense(usize),
}

/// Searches one payload from literal to literal.
pub(super) struct Windows<'a> {
    literals: &'a Literals,
    reach: Reach,
    data: &'a [u8],
    start: usize,
    /// Bytes of windows searched so far. Bounding it by the progress made keeps the whole search linear.
    spent: usize,
    /// The end of the last window, where windows do not overlap.
    end: usize,
}

/// Where to search around a literal.
struct Window {
    span: Range<usize>,
    /// A match that starts after this byte may reach beyond the window; it is found from the next literal.
    last_start: usize,
}

impl Windows<'_> {
    /// Finds the first match at or after `pos`. `find` searches within a span.
    pub(super) fn next(
        &mut self,
        mut pos: usize,
        find: &mut dyn FnMut(Range<usize>) -> Option<Range<usize>>,
    ) -> Step {
        while pos < self.data.len() {
            if self.spent > CREDIT_BYTES.saturating_add(pos - self.start) {
                return Step::TooDense(pos);
            }
            let Some(literal) = self.literals.find(self.data, Span { start: pos, end: self.data.len() })
            else {
                return Step::End;
            };
            let Window { span, last_start } = self.around(literal.start, pos);
            let found = find(span.clone());
            self.spent = self.spent.saturating_add(span.len());
            match found {
                Some(found) if found.start <= last_start => return Step::Found(found),
                _ => pos = last_start + 1,
            }
        }
        Step::End
    }

    /// Returns the window around `literal`, which must be the first one at or after `pos`. A match that
    /// starts between the two contains this literal or a later one, so it starts within reach of this one.
    fn around(&mut self, literal: usize, pos: usize) -> Window {
        match self.reach {
            Reach::Bytes(longest) => {
                let start = literal.saturating_sub(longest).max(pos);
                let end = literal.saturating_add(longest).min(self.data.len());
                Window { span: start..end, last_start: literal }
            }
            Reach::Delimited { delimiters, max_count } => {
                let start = self.delimiter_before(literal, pos, delimiters, max_count);
                // If matches contain no delimiter, none leaves the window, so the whole window is done with
                // at once.
                if max_count > 0 {
                    let end = self.delimiter_after(literal, delimiters, max_count);
                    return Window { span: start..end, last_start: literal };
                }
                if literal >= self.end {
                    self.end = self.delimiter_after(literal, delimiters, max_count);
                }
                Window { span: start..self.end, last_start: self.end }
            }
        }
    }

    fn delimiter_before(&self, at: usize, pos: usize, [a, b, c]: [u8; 3], max_count: usize) -> usize {
        let before = self.data.get(pos..at).unwrap_or_default();
        memchr3_iter(a, b, c, before).nth_back(max_count).map_or(pos, |delimiter| pos + delimiter + 1)
    }

    fn delimiter_after(&self, at: usize, [a, b, c]: [u8; 3], max_count: usize) -> usize {
        let after = self.data.get(at..).unwrap_or_default();
        memchr3_iter(a, b, c, after).nth(max_count).map_or(self.data.len(), |delimiter| at + delimiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefilter(pattern: &str) -> Option<Prefilter> {
        let hir = regex_syntax::ParserBuilder::new().utf8(false).build().parse(pattern).unwrap();
        Prefilter::new(&hir, pattern.len())
    }

    /// Returns what the best candidate finds first in `sample`.
    fn best<'a>(pattern: &str, sample: &'a str) -> &'a str {
        let found =
            prefilter(pattern).unwrap().candidates[0].find(sample.as_bytes(), Span::from(0..sample.len()));
        &sample[found.unwrap().range()]
    }

    #[test]
    fn the_rarest_literal_is_chosen() {
        for (pattern, sample, literal) in [
            (r"[a-z]+ing", "sing", "ing"),
            (r"\d+ .{0,9}(retry )+WARN", "1 retry WARN", "WARN"),
            (r"[0-9]+(?:fatal|panic)\d+", "7panic7", "panic"),
            (r"(?i)\d+exit", "1eXIT", "eXIT"),
        ] {
            assert_eq!(best(pattern, sample), literal, "{pattern}");
        }
    }

    #[test]
    fn windows_reach_as_far_as_matches() {
        for (pattern, reach) in [
            (r"[ab].{0,9}fail", "Bytes(41)"),
            (r"\w+fail", "Delimited { delimiters: [10, 34, 32], max_count: 0 }"),
            (r".*fail", "Delimited { delimiters: [10, 10, 10], max_count: 0 }"),
            ("\"[^\"]*fail[^\"]*\"", "Delimited { delimiters: [34, 34, 34], max_count: 2 }"),
        ] {
            assert_eq!(format!("{:?}", prefilter(pattern).unwrap().reach), reach, "{pattern}");
        }
    }

    #[test]
    fn some_patterns_have_no_prefilter() {
        for pattern in
            ["fail", "fail|time", r"\d+", "(?s).*fail", "(?:fail)*", "x|fail.", "[ab]f", &"a.b".repeat(999)]
        {
            assert!(prefilter(pattern).is_none(), "{pattern}");
        }
    }

    #[test]
    fn dense_literals_end_the_windows() {
        let data = "ab".repeat(1000);
        let prefilter = prefilter("[ab].{0,99}ab[^ab]").unwrap();
        let mut windows = prefilter.windows(data.as_bytes(), 0).unwrap();
        let Step::TooDense(at) = windows.next(0, &mut |_| None) else { panic!("no end") };
        assert!(at < 100, "{at}");
    }
}
