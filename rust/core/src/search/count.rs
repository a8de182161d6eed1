//! Counts matches, without making contexts.

use std::time::{Duration, Instant};

use memchr::memmem::Finder;

use super::{Found, Mode, Pattern};
use crate::index::{ItemFinder, ItemIndex, Kind};

/// Number of matches in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// How many matches there are.
    pub matches: u64,
    /// How many items have a match that begins in them; `None` without an index of items.
    pub items: Option<u64>,
    /// Whether all of the payload was searched. If not, there may be more.
    pub is_complete: bool,
}

/// Counts the matches of a whole payload, and with an index of items also the items that have any.
///
/// A regular expression may take a pass over the payload for each match. It stops at the first match after
/// `max_duration`; literals do not stop.
#[must_use]
pub fn count(
    data: &[u8],
    pattern: &Pattern,
    index: Option<&ItemIndex>,
    max_duration: Option<Duration>,
) -> Count {
    let deadline = max_duration
        .filter(|_| pattern.literal_finder().is_none())
        .map(|duration| (Instant::now(), duration));
    let mut items = index
        .filter(|index| !matches!(index.kind(), None | Some(Kind::Lines)))
        .map(|index| ItemFinder::new(data, index));
    let (mut matches, mut items_with_matches, mut last) = (0, 0, None);
    let mut is_complete = true;
    for found in Found::new(data, pattern, 0, index) {
        matches += 1;
        if let Some(finder) = &mut items {
            let item = finder.item_at(found.start as u64);
            items_with_matches += u64::from(item.is_some() && item != last);
            last = item.or(last);
        }
        if deadline.is_some_and(|(start, duration)| start.elapsed() > duration) {
            is_complete = false;
            break;
        }
    }
    Count { matches, items: items.map(|_| items_with_matches), is_complete }
}

/// Counter of a literal in the bytes of a payload that arrives in pieces, cut anywhere.
#[derive(Debug, Clone)]
pub struct LiteralCounter {
    finder: Finder<'static>,
    /// The end of the last piece, as far as a match could begin in it.
    tail: Vec<u8>,
    matches: u64,
}

impl LiteralCounter {
    /// Returns a counter for a pattern; `None` unless it is a literal that is compared with bytes.
    #[must_use]
    pub fn new(pattern: &Pattern) -> Option<Self> {
        let finder = pattern.literal_finder().filter(|_| pattern.mode == Mode::Text)?;
        Some(Self { finder: finder.clone(), tail: Vec::new(), matches: 0 })
    }

    /// Counts the matches that end in the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        let needed = self.finder.needle().len() - 1;
        let mut start = 0;
        if !self.tail.is_empty() {
            let border = self.tail.len();
            self.tail.extend_from_slice(&piece[..piece.len().min(needed)]);
            if let Some(found) = self.finder.find(&self.tail) {
                // It begins in the tail, and so ends in the piece. Another one cannot.
                self.matches += 1;
                start = found + needed + 1 - border;
            }
            if piece.len() < needed {
                let used = if start > 0 { border + start } else { 0 };
                self.keep_tail_from(used);
                return;
            }
        }
        let mut ends = self.finder.find_iter(&piece[start..]);
        if let Some(last) = ends.by_ref().inspect(|_| self.matches += 1).last() {
            start += last + needed + 1;
        }
        self.tail.clear();
        self.tail.extend_from_slice(&piece[start.max(piece.len().saturating_sub(needed))..]);
    }

    /// Drops the first bytes of the tail, and those that are too far from its end.
    fn keep_tail_from(&mut self, used: usize) {
        let needed = self.finder.needle().len() - 1;
        let from = used.max(self.tail.len().saturating_sub(needed));
        self.tail.drain(..from);
    }

    /// Returns the number of matches in all pieces.
    #[must_use]
    pub fn matches(&self) -> u64 {
        self.matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::index_items;
    use crate::search::{Options, search};
    use proptest::prelude::*;

    const ALL: Options = Options { offset: 0, limit: usize::MAX, context: 0, paths: false };

    proptest! {
        #[test]
        fn counts_what_a_search_finds(items in prop::collection::vec("[ab]{0,4}", 0..20), pattern in "a|b|ab|aa|b\",\"a|\"\\]") {
            let data = serde_json::to_vec(&items).unwrap();
            let index = index_items(&data, None, true).unwrap();
            for pattern in [Pattern::literal(&pattern, false), Pattern::regex(&pattern.replace(']', r"\]"), false), Pattern::in_values(&pattern, false, false)] {
                let pattern = pattern.unwrap();
                let found = search(&data, &pattern, ALL, Some(&index)).unwrap().matches;
                let mut numbers: Vec<_> = found.iter().filter_map(|found| found.item).collect();
                numbers.dedup();
                let expected = Count { matches: found.len() as u64, items: Some(numbers.len() as u64), is_complete: true };
                prop_assert_eq!(count(&data, &pattern, Some(&index), None), expected);
                prop_assert_eq!(count(&data, &pattern, None, None), Count { items: None, ..expected });
            }
        }

        #[test]
        fn pieces_are_counted_like_the_whole(text in "[ab]{0,200}", literal in "[ab]{1,9}", cuts in prop::collection::vec(1..12_usize, 1..30)) {
            let pattern = Pattern::literal(&literal, false).unwrap();
            let mut counter = LiteralCounter::new(&pattern).unwrap();
            let (mut rest, mut cuts) = (text.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                counter.feed(piece);
                rest = after;
            }
            prop_assert_eq!(counter.matches(), text.matches(&literal).count() as u64, "{} in {}", literal, text);
        }
    }

    #[test]
    fn a_regular_expression_stops_in_time() {
        let data = b"a".repeat(1000);
        let stopped = count(&data, &Pattern::regex("a", false).unwrap(), None, Some(Duration::ZERO));
        assert!(stopped.matches >= 1 && !stopped.is_complete, "{stopped:?}");
        // A literal takes one pass, so it need not stop.
        let literal = count(&data, &Pattern::literal("a", false).unwrap(), None, Some(Duration::ZERO));
        assert_eq!((literal.matches, literal.is_complete), (1000, true));
    }

    #[test]
    fn only_literals_are_counted_in_pieces() {
        for pattern in
            [Pattern::regex("a", false), Pattern::literal("a", true), Pattern::in_values("a", false, false)]
        {
            assert!(LiteralCounter::new(&pattern.unwrap()).is_none());
        }
    }
}
