//! What text weighs on the wire: its bytes once they were JSON-escaped, perhaps twice.
//!
//! Text in a tool's result is escaped at least once on its way, and text inside JSON inside text twice. Budgets
//! are of what is sent, so a page or preview is measured before anything is escaped. Quotes around the string
//! are not counted.

use crate::error::{Error, Result};

/// How many times text will be JSON-escaped on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escaping {
    /// It goes out as it is.
    Never,
    /// It becomes a JSON string.
    Once,
    /// It becomes a JSON string inside of a JSON string.
    Twice,
}

impl Escaping {
    /// From a number of levels: 0, 1 or 2.
    pub fn from_levels(levels: u64) -> Result<Self> {
        match levels {
            0 => Ok(Self::Never),
            1 => Ok(Self::Once),
            2 => Ok(Self::Twice),
            _ => Err(Error::argument(format!("escape_levels must be at most 2, not {levels}"))),
        }
    }

    /// What the heaviest character weighs: within this budget there is always room for one more.
    #[must_use]
    pub fn heaviest(self) -> usize {
        match self {
            Self::Never => 4,
            Self::Once => 6,
            Self::Twice => 7,
        }
    }

    /// Refuses a budget that some character would never fit in, so that pages always make progress.
    pub(crate) fn check_budget(self, max_bytes: u64) -> Result<usize> {
        let least = self.heaviest();
        match usize::try_from(max_bytes).unwrap_or(usize::MAX) {
            budget if budget >= least => Ok(budget),
            _ => Err(Error::argument(format!("max_bytes must be at least {least}, not {max_bytes}"))),
        }
    }

    /// How many bytes `text` is on the wire.
    #[must_use]
    pub fn weigh(self, text: &[u8]) -> usize {
        match self {
            Self::Never => text.len(),
            Self::Once => weigh::<1>(text),
            Self::Twice => weigh::<2>(text),
        }
    }

    /// How many bytes of `text` weigh at most `budget`. That may be within a character: a byte of a longer one
    /// weighs 1. The work is bounded by the budget, whatever the text's length.
    #[must_use]
    pub fn fit(self, text: &[u8], budget: usize) -> usize {
        match self {
            Self::Never => text.len().min(budget),
            Self::Once => fit::<1>(text, budget),
            Self::Twice => fit::<2>(text, budget),
        }
    }
}

/// As many bytes as still sum up in a `u8` when each is the heaviest: no widening, so the loop becomes SIMD.
const CHUNK: usize = 32;

/// Without branches or tables, for the same reason.
#[inline(always)]
fn weight<const LEVELS: u8>(byte: u8) -> u8 {
    let quoted = (byte == b'"') | (byte == b'\\');
    let control = byte < 0x20;
    // Those that have a letter (`\b \t \n \f \r`) instead of `\u00XX`: 0x08 to 0x0d, all but 0x0b.
    let lettered = (byte.wrapping_sub(0x08) < 6) & (byte != 0x0b);
    let doubled = (1 << LEVELS) - 1;
    1 + if quoted { doubled } else { 0 } + if control { 4 + LEVELS } else { 0 } - if lettered { 4 } else { 0 }
}

fn weigh_chunk<const LEVELS: u8>(chunk: &[u8; CHUNK]) -> usize {
    usize::from(chunk.iter().map(|&byte| weight::<LEVELS>(byte)).sum::<u8>())
}

fn weigh<const LEVELS: u8>(text: &[u8]) -> usize {
    let (chunks, rest) = text.as_chunks();
    let mut total = 0;
    for chunk in chunks {
        total += weigh_chunk::<LEVELS>(chunk);
    }
    for &byte in rest {
        total += usize::from(weight::<LEVELS>(byte));
    }
    total
}

fn fit<const LEVELS: u8>(text: &[u8], budget: usize) -> usize {
    let mut left = budget;
    let mut end = 0;
    for chunk in text.as_chunks().0 {
        match left.checked_sub(weigh_chunk::<LEVELS>(chunk)) {
            Some(rest) => left = rest,
            None => break,
        }
        end += CHUNK;
    }
    for &byte in &text[end..] {
        match left.checked_sub(usize::from(weight::<LEVELS>(byte))) {
            Some(rest) => left = rest,
            None => break,
        }
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [(Escaping, u32); 3] = [(Escaping::Never, 0), (Escaping::Once, 1), (Escaping::Twice, 2)];

    /// Really escapes.
    fn naive(text: &str, levels: u32) -> usize {
        let escape = |text: String| {
            let quoted = serde_json::to_string(&text).unwrap();
            quoted[1..quoted.len() - 1].to_owned()
        };
        (0..levels).fold(text.to_owned(), |text, _| escape(text)).len()
    }

    #[test]
    fn every_character_weighs_what_it_is_escaped_to() {
        for (escaping, levels) in ALL {
            let weights = ('\0'..=char::MAX).step_by(7).chain('\0'..='\u{7ff}').map(|c| {
                let text = c.to_string();
                let weight = escaping.weigh(text.as_bytes());
                assert_eq!(weight, naive(&text, levels), "{c:?} at {levels}");
                weight
            });
            assert_eq!(weights.max(), Some(escaping.heaviest()));
        }
    }

    #[test]
    fn the_heaviest_chunk_does_not_overflow() {
        let text = "\u{1}".repeat(3 * CHUNK);
        assert_eq!(Escaping::Twice.weigh(text.as_bytes()), naive(&text, 2));
    }

    #[test]
    fn levels_are_zero_to_two() {
        for (escaping, levels) in ALL {
            assert_eq!(Escaping::from_levels(levels.into()), Ok(escaping));
        }
        assert!(Escaping::from_levels(3).is_err());
        assert!(Escaping::from_levels(u64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn weighs_and_fits_like_escaping(
            text in prop::collection::vec(crate::testing::text(), 0..12).prop_map(|texts| texts.concat()),
            budget in 0..700_usize,
        ) {
            for (escaping, levels) in ALL {
                prop_assert_eq!(escaping.weigh(text.as_bytes()), naive(&text, levels));
                let end = escaping.fit(text.as_bytes(), budget);
                let end = (0..=end).rev().find(|&at| text.is_char_boundary(at)).unwrap();
                let naive = (0..=text.len())
                    .filter(|&at| text.is_char_boundary(at) && naive(&text[..at], levels) <= budget)
                    .max();
                prop_assert_eq!(Some(end), naive);
            }
        }
    }
}
