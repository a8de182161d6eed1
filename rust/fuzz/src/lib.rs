//! Differential fuzz targets: each compares a function with a reference on arbitrary bytes.
//!
//! A target panics if they differ. To add one, write a module with `compare`, list it in [`TARGETS`] and add
//! a file to `fuzz_targets/`.

pub mod cells;
pub mod collections;
pub mod feed;
pub mod filter;
pub mod footer;
pub mod index;
pub mod items;
pub mod message;
pub mod oracle;
pub mod outline;
pub mod pages;
pub mod patch;
pub mod pointer;
pub mod preview;
pub mod project;
pub mod redact;
pub mod search;
pub mod truncate;
pub mod validate;

/// Input of a target: a payload, and bytes that choose arguments.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub knobs: [u8; KNOBS],
    pub data: &'a [u8],
}

/// Bytes of an input that choose arguments.
pub const KNOBS: usize = 4;

impl<'a> Input<'a> {
    #[must_use]
    pub fn split(bytes: &'a [u8]) -> Self {
        match bytes.split_first_chunk() {
            Some((&knobs, data)) => Self { knobs, data },
            None => Self { knobs: [0; KNOBS], data: bytes },
        }
    }

    /// Returns a number from 0 to twice the payload's length, so that half of the budgets are too small.
    #[must_use]
    pub fn budget(&self) -> u64 {
        let part = u64::from(u16::from_le_bytes([self.knobs[0], self.knobs[1]]));
        2 * self.data.len() as u64 * part / u64::from(u16::MAX)
    }
}

/// A target's name and its function.
pub type Target = (&'static str, fn(Input<'_>));

pub const TARGETS: [Target; 17] = [
    ("cells", cells::compare),
    ("feed", feed::compare),
    ("filter", filter::compare),
    ("footer", footer::compare),
    ("index", index::compare),
    ("items", items::compare),
    ("message", message::compare),
    ("outline", outline::compare),
    ("pages", pages::compare),
    ("patch", patch::compare),
    ("pointer", pointer::compare),
    ("preview", preview::compare),
    ("project", project::compare),
    ("redact", redact::compare),
    ("search", search::compare),
    ("truncate", truncate::compare),
    ("validate", validate::compare),
];
