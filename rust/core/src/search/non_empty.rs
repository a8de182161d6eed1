//! Rewrites a pattern so that it never matches the empty string.
//!
//! Otherwise the engine would stop at every byte that `a*` does not match, and miss matches that rank below
//! an empty one: `(?:\b|ab)` prefers the empty match in front of an `ab`.

use std::{iter, slice};

use regex_syntax::hir::{Hir, HirKind, Repetition};

/// Alternatives that a pattern may expand to.
const MAX_ALTERNATIVES: usize = 64;

/// One way to match. The alternatives of a pattern, in order of preference, are equivalent to the pattern.
enum Alternative {
    /// Matches no bytes, but may look around.
    Empty(Hir),
    /// Matches at least one byte.
    NonEmpty(Hir),
}

/// Returns a pattern that matches like `hir`, with the same preferences, but never the empty string.
///
/// `None` if a repeated part can itself be empty, or if there are too many alternatives.
pub(super) fn restrict(hir: &Hir) -> Option<Hir> {
    let non_empty = alternatives(hir)?.into_iter().filter_map(|alternative| match alternative {
        Alternative::Empty(_) => None,
        Alternative::NonEmpty(hir) => Some(hir),
    });
    Some(Hir::alternation(non_empty.collect()))
}

fn alternatives(hir: &Hir) -> Option<Vec<Alternative>> {
    if hir.properties().minimum_len() != Some(0) {
        return Some(vec![Alternative::NonEmpty(hir.clone())]);
    }
    if hir.properties().maximum_len() == Some(0) {
        return Some(vec![Alternative::Empty(hir.clone())]);
    }
    let alternatives = match hir.kind() {
        HirKind::Capture(capture) => alternatives(&capture.sub)?,
        HirKind::Repetition(repetition) => repetition_alternatives(repetition)?,
        HirKind::Concat(parts) => concat_alternatives(parts)?,
        HirKind::Alternation(branches) => {
            branches.iter().map(alternatives).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect()
        }
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => return None,
    };
    (alternatives.len() <= MAX_ALTERNATIVES).then_some(alternatives)
}

fn repetition_alternatives(repetition: &Repetition) -> Option<Vec<Alternative>> {
    if repetition.sub.properties().minimum_len() == Some(0) {
        return None;
    }
    let once_or_more = Alternative::NonEmpty(Hir::repetition(Repetition { min: 1, ..repetition.clone() }));
    let nothing = Alternative::Empty(Hir::empty());
    Some(if repetition.greedy { vec![once_or_more, nothing] } else { vec![nothing, once_or_more] })
}

/// Works from the last part to the first: `tails` are the alternatives of the parts that follow.
fn concat_alternatives(parts: &[Hir]) -> Option<Vec<Alternative>> {
    if parts.len() > MAX_ALTERNATIVES {
        return None;
    }
    let mut tails = vec![Alternative::Empty(Hir::empty())];
    for (at, part) in parts.iter().enumerate().rev() {
        let rest = parts.get(at + 1..)?;
        let mut all = Vec::new();
        for alternative in alternatives(part)? {
            match alternative {
                Alternative::NonEmpty(first) => all.push(Alternative::NonEmpty(concat(&first, rest))),
                Alternative::Empty(first) => all.extend(tails.iter().map(|alternative| match alternative {
                    Alternative::Empty(rest) => Alternative::Empty(concat(&first, slice::from_ref(rest))),
                    Alternative::NonEmpty(rest) => {
                        Alternative::NonEmpty(concat(&first, slice::from_ref(rest)))
                    }
                })),
            }
        }
        if all.len() > MAX_ALTERNATIVES {
            return None;
        }
        tails = all;
    }
    Some(tails)
}

fn concat(first: &Hir, rest: &[Hir]) -> Hir {
    Hir::concat(iter::once(first).chain(rest).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restrict_pattern(pattern: &str) -> Option<String> {
        Some(restrict(&regex_syntax::parse(pattern).unwrap())?.to_string())
    }

    fn parse_pattern(pattern: &str) -> Option<String> {
        Some(regex_syntax::parse(pattern).unwrap().to_string())
    }

    #[test]
    fn keeps_non_empty_alternatives_in_order() {
        for (pattern, expected) in [
            ("a*", "a+"),
            ("a*?", "a+?"),
            ("(?:xy){0,3}", "(?:xy){1,3}"),
            ("a?b", "a?b"),
            ("a?b*?", "ab*?|b+?"),
            ("^(a*)$", "^a+$"),
            (r"a|\b|b?", "a|b"),
            (r"(?:\b|ab)c?", r"\bc|abc?"),
            (r"\b", "[a&&b]"),
        ] {
            assert_eq!(restrict_pattern(pattern), parse_pattern(expected), "{pattern}");
        }
    }

    #[test]
    fn gives_up_on_some_patterns() {
        let many = r"(?:a|\b|\B)".repeat(7);
        let long = format!("{}a*", r"\b".repeat(100_000));
        for pattern in ["(?:a*)*", "(?:a|b*){2}", &many, &long] {
            assert_eq!(restrict_pattern(pattern), None, "{pattern}");
        }
    }
}
