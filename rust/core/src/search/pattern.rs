//! Search patterns: compiled once, usable for any payload.

use std::ops::Range;

use memchr::memmem::Finder;
use regex_automata::Input;
use regex_automata::meta::{BuildError, Cache, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_syntax::ast;
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

use super::prefilter::{Prefilter, Step, Windows};
use super::{ascii, non_empty};
use crate::error::{Error, Result};

/// Maximum nesting of groups and sets; bounds every recursion over a pattern.
const MAX_NESTING: u32 = 96;

/// Maximum size of a regular expression: parsing takes much longer than searching, and a longer one would not fit
/// into [`MAX_COMPILED_BYTES`] anyway.
const MAX_REGEX_BYTES: usize = 1 << 16;

/// Maximum size of a compiled pattern. The slowest engine takes time in proportion to it, for every byte.
const MAX_COMPILED_BYTES: usize = 1 << 18;

/// Size of the lazy DFA's cache: large enough that patterns over all of Unicode rarely fill it.
const DFA_CACHE_BYTES: usize = 8 << 20;

/// What a pattern is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The bytes of a payload.
    Text,
    /// The keys, strings, numbers and literals of JSON or NDJSON, each by itself and with its escapes decoded.
    Values,
}

/// A literal or a regular expression, compiled.
#[derive(Debug)]
pub struct Pattern {
    engine: Engine,
    pub(super) mode: Mode,
}

#[derive(Debug)]
enum Engine {
    Literal(Box<Finder<'static>>),
    Regex { regex: Regex, prefilter: Option<Prefilter>, matches_quotes: bool },
}

impl Pattern {
    /// Compiles a literal. `ignore_case` folds by Unicode simple case folding.
    pub fn literal(text: &str, ignore_case: bool) -> Result<Self> {
        if ignore_case {
            return Self::regex(&regex_syntax::escape(text), true);
        }
        reject_empty(text)?;
        let engine = Engine::Literal(Box::new(Finder::new(text).into_owned()));
        Ok(Self { engine, mode: Mode::Text })
    }

    /// Compiles a regular expression. It has the syntax of the `regex` crate, except that `\w`, `\d`, `\s`
    /// and `\b` are ASCII and that `^` and `$` match at line ends. Bytes that are not UTF-8 match nothing but
    /// `(?-u)` sets.
    pub fn regex(text: &str, ignore_case: bool) -> Result<Self> {
        Self::compile_regex(text, ignore_case, Mode::Text)
    }

    /// Compiles a literal or regular expression for the values of JSON. `^` and `$` match at the ends of a value.
    pub fn in_values(text: &str, is_regex: bool, ignore_case: bool) -> Result<Self> {
        if is_regex {
            return Self::compile_regex(text, ignore_case, Mode::Values);
        }
        Ok(Self { mode: Mode::Values, ..Self::literal(text, ignore_case)? })
    }

    fn compile_regex(text: &str, ignore_case: bool, mode: Mode) -> Result<Self> {
        reject_empty(text)?;
        let hir = parse(text, ignore_case, mode)?;
        let prefilter = Prefilter::new(&hir, text.len());
        let matches_quotes = can_contain(&hir, b'"');
        Ok(Self { engine: Engine::Regex { regex: compile(&hir)?, prefilter, matches_quotes }, mode })
    }

    /// Returns the literal; `None` for a regular expression.
    pub(super) fn literal_finder(&self) -> Option<&Finder<'static>> {
        match &self.engine {
            Engine::Literal(finder) => Some(finder),
            Engine::Regex { .. } => None,
        }
    }

    /// Whether a match can contain a `"`.
    pub(crate) fn matches_quotes(&self) -> bool {
        match &self.engine {
            Engine::Literal(finder) => finder.needle().contains(&b'"'),
            Engine::Regex { matches_quotes, .. } => *matches_quotes,
        }
    }

    /// Returns a searcher for many small texts.
    pub(crate) fn searcher(&self) -> TextSearcher<'_> {
        match &self.engine {
            Engine::Literal(finder) => TextSearcher::Literal(finder),
            Engine::Regex { regex, .. } => {
                TextSearcher::Regex { regex, cache: Box::new(regex.create_cache()) }
            }
        }
    }

    /// Returns the matches in the bytes of a payload from `start` on: leftmost first, then by preference, none of them
    /// empty.
    pub(crate) fn matches<'a>(&'a self, data: &'a [u8], start: usize) -> Matches<'a> {
        let searcher = match &self.engine {
            Engine::Literal(finder) => Searcher::Literal(finder),
            Engine::Regex { regex, prefilter, .. } => Searcher::Regex {
                regex,
                cache: Box::new(regex.create_cache()),
                windows: prefilter.as_ref().and_then(|prefilter| prefilter.windows(data, start)),
            },
        };
        Matches { data, pos: start, searcher }
    }

    #[cfg(test)]
    pub(super) fn without_prefilter(mut self) -> Self {
        if let Engine::Regex { prefilter, .. } = &mut self.engine {
            *prefilter = None;
        }
        self
    }
}

fn reject_empty(text: &str) -> Result<()> {
    if text.is_empty() {
        Err(Error::argument("the pattern is empty; give something to find"))
    } else {
        Ok(())
    }
}

fn parse(text: &str, ignore_case: bool, mode: Mode) -> Result<Hir> {
    if text.len() > MAX_REGEX_BYTES {
        return Err(Error::pattern(format!(
            "it has {} bytes, and {MAX_REGEX_BYTES} are allowed; search for a shorter part of it, or for a literal with case",
            text.len()
        )));
    }
    let invalid = |kind: &dyn std::fmt::Display, at: usize| {
        Error::pattern(format!("{kind} (byte {at} of the pattern); mend it, or search for it as a literal"))
    };
    let mut ast = ast::parse::ParserBuilder::new()
        .nest_limit(MAX_NESTING)
        .build()
        .parse(text)
        .map_err(|error| invalid(error.kind(), error.span().start.offset))?;
    ascii::restrict(&mut ast);
    let hir = TranslatorBuilder::new()
        .utf8(false)
        .multi_line(mode == Mode::Text)
        .case_insensitive(ignore_case)
        .build()
        .translate(text, &ast)
        .map_err(|error| invalid(error.kind(), error.span().start.offset))?;
    // Skipping empty matches instead would cost a pass for each byte, and miss the matches that rank below
    // them.
    non_empty::restrict(&hir).ok_or_else(|| {
        Error::pattern(
            "it repeats something that can match nothing; ask for at least one, as a+ does instead of a*",
        )
    })
}

/// Whether a match can contain an ASCII character.
fn can_contain(hir: &Hir, byte: u8) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => false,
        HirKind::Literal(literal) => literal.0.contains(&byte),
        HirKind::Class(Class::Unicode(class)) => {
            class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&char::from(byte)))
        }
        HirKind::Class(Class::Bytes(class)) => {
            class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&byte))
        }
        HirKind::Repetition(repetition) => can_contain(&repetition.sub, byte),
        HirKind::Capture(capture) => can_contain(&capture.sub, byte),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().any(|part| can_contain(part, byte))
        }
    }
}

fn compile(hir: &Hir) -> Result<Regex> {
    let config = Regex::config()
        .utf8_empty(false)
        .which_captures(WhichCaptures::Implicit)
        .nfa_size_limit(Some(MAX_COMPILED_BYTES))
        .hybrid_cache_capacity(DFA_CACHE_BYTES);
    Regex::builder().configure(config).build_from_hir(hir).map_err(|error| compile_error(&error))
}

fn compile_error(error: &BuildError) -> Error {
    match error.size_limit() {
        Some(_) => {
            Error::pattern("it compiles to something too large; use fewer or smaller repetition counts")
        }
        None => Error::pattern(error.to_string()),
    }
}

/// Finds matches in many small texts: unlike [`Matches`], it keeps its memory from one text to the next.
#[derive(Debug)]
pub(crate) enum TextSearcher<'a> {
    Literal(&'a Finder<'static>),
    Regex { regex: &'a Regex, cache: Box<Cache> },
}

impl TextSearcher<'_> {
    /// Returns the first match from `start` on.
    pub(crate) fn find(&mut self, text: &[u8], start: usize) -> Option<Range<usize>> {
        if start >= text.len() {
            return None;
        }
        match self {
            Self::Literal(finder) => {
                let at = start + finder.find(&text[start..])?;
                Some(at..at + finder.needle().len())
            }
            Self::Regex { regex, cache } => {
                let input = Input::new(text).range(start..text.len());
                regex.search_with(cache, &input).map(|found| found.range())
            }
        }
    }
}

/// Iterator over the matches in one payload.
pub(crate) struct Matches<'a> {
    data: &'a [u8],
    pos: usize,
    searcher: Searcher<'a>,
}

enum Searcher<'a> {
    Literal(&'a Finder<'static>),
    Regex { regex: &'a Regex, cache: Box<Cache>, windows: Option<Windows<'a>> },
}

impl Iterator for Matches<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let found = match &mut self.searcher {
            Searcher::Literal(finder) => {
                let start = self.pos + finder.find(self.data.get(self.pos..)?)?;
                Some(start..start + finder.needle().len())
            }
            Searcher::Regex { regex, cache, windows } => {
                next_regex(self.data, self.pos, regex, cache, windows)
            }
        };
        self.pos = found.as_ref().map_or(self.data.len(), |found| found.end);
        found
    }
}

fn next_regex(
    data: &[u8],
    mut pos: usize,
    regex: &Regex,
    cache: &mut Cache,
    windows: &mut Option<Windows<'_>>,
) -> Option<Range<usize>> {
    // The haystack is always the whole payload, so that look-around sees beyond both ends of the span.
    let mut find =
        |span: Range<usize>| regex.search_with(cache, &Input::new(data).range(span)).map(|m| m.range());
    if let Some(narrowed) = windows {
        match narrowed.next(pos, &mut find) {
            Step::Found(found) => return Some(found),
            Step::End => return None,
            Step::TooDense(from) => pos = from,
        }
        *windows = None;
    }
    if pos < data.len() { find(pos..data.len()) } else { None }
}
