//! Takes the empty match out of a pattern.
//!
//! Otherwise the engine stops at every byte that `a*` does not match, and misses what comes second to nothing:
//! `(?:\b|ab)` prefers the empty match in front of an `ab`.

use std::{iter, slice};

use regex_syntax::hir::{Hir, HirKind, Repetition};

/// More ways than this make the pattern larger than it is worth.
const MAX_WAYS: usize = 64;

/// One way to match. All ways of a pattern, in order of preference, are the pattern.
enum Way {
    /// Takes no byte, and may look around.
    Empty(Hir),
    /// Takes one at least.
    Taking(Hir),
}

/// What matches as `hir` does, with the same preferences, but never the empty string.
///
/// `None` where something is repeated that can itself be empty, or where there are too many ways.
pub(super) fn restrict(hir: &Hir) -> Option<Hir> {
    let taking = ways(hir)?.into_iter().filter_map(|way| match way {
        Way::Empty(_) => None,
        Way::Taking(hir) => Some(hir),
    });
    Some(Hir::alternation(taking.collect()))
}

fn ways(hir: &Hir) -> Option<Vec<Way>> {
    if hir.properties().minimum_len() != Some(0) {
        return Some(vec![Way::Taking(hir.clone())]);
    }
    if hir.properties().maximum_len() == Some(0) {
        return Some(vec![Way::Empty(hir.clone())]);
    }
    let ways = match hir.kind() {
        HirKind::Capture(capture) => ways(&capture.sub)?,
        HirKind::Repetition(repetition) => ways_of_repetition(repetition)?,
        HirKind::Concat(parts) => ways_of_concat(parts)?,
        HirKind::Alternation(branches) => {
            branches.iter().map(ways).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect()
        }
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => return None,
    };
    (ways.len() <= MAX_WAYS).then_some(ways)
}

fn ways_of_repetition(repetition: &Repetition) -> Option<Vec<Way>> {
    if repetition.sub.properties().minimum_len() == Some(0) {
        return None;
    }
    let once_or_more = Way::Taking(Hir::repetition(Repetition { min: 1, ..repetition.clone() }));
    let nothing = Way::Empty(Hir::empty());
    Some(if repetition.greedy { vec![once_or_more, nothing] } else { vec![nothing, once_or_more] })
}

/// From the last part to the first: `so_far` are the ways of what follows.
fn ways_of_concat(parts: &[Hir]) -> Option<Vec<Way>> {
    if parts.len() > MAX_WAYS {
        return None;
    }
    let mut so_far = vec![Way::Empty(Hir::empty())];
    for (at, part) in parts.iter().enumerate().rev() {
        let rest = parts.get(at + 1..)?;
        let mut all = Vec::new();
        for way in ways(part)? {
            match way {
                Way::Taking(first) => all.push(Way::Taking(followed_by(&first, rest))),
                Way::Empty(first) => all.extend(so_far.iter().map(|way| match way {
                    Way::Empty(rest) => Way::Empty(followed_by(&first, slice::from_ref(rest))),
                    Way::Taking(rest) => Way::Taking(followed_by(&first, slice::from_ref(rest))),
                })),
            }
        }
        if all.len() > MAX_WAYS {
            return None;
        }
        so_far = all;
    }
    Some(so_far)
}

fn followed_by(first: &Hir, rest: &[Hir]) -> Hir {
    Hir::concat(iter::once(first).chain(rest).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restricted(pattern: &str) -> Option<String> {
        Some(restrict(&regex_syntax::parse(pattern).unwrap())?.to_string())
    }

    fn parsed(pattern: &str) -> Option<String> {
        Some(regex_syntax::parse(pattern).unwrap().to_string())
    }

    #[test]
    fn keeps_what_takes_bytes_in_order() {
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
            assert_eq!(restricted(pattern), parsed(expected), "{pattern}");
        }
    }

    #[test]
    fn knows_its_limits() {
        let many = r"(?:a|\b|\B)".repeat(7);
        let long = format!("{}a*", r"\b".repeat(100_000));
        for pattern in ["(?:a*)*", "(?:a|b*){2}", &many, &long] {
            assert_eq!(restricted(pattern), None, "{pattern}");
        }
    }
}
