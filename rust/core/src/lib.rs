//! Slice, index, search and truncate large payloads as bytes, without parsing them.
//!
//! Every verb borrows the payload and returns spans or small answers. Nothing here panics, whatever the bytes.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod checksum;
pub mod error;
pub mod escaping;
pub mod index;
pub mod items;
pub mod lines;
pub mod message;
mod ndjson;
pub mod outline;
pub mod page;
pub mod pointer;
pub mod preview;
pub mod project;
pub mod range;
mod reader;
pub mod scan;
pub mod search;
pub mod survey;
#[cfg(test)]
mod testing;
pub mod text;
pub mod truncate;
pub mod truncate_lines;
mod utf8;
pub mod validate;

pub use checksum::checksum;
pub use error::{Error, ErrorKind, Result};
pub use escaping::Escaping;
pub use index::{ItemIndex, ItemIndexer, index_items, index_lines};
pub use items::{ItemPage, read_items};
pub use lines::{LinePage, read_lines};
pub use outline::outline;
pub use page::Cut;
pub use pointer::{Pointer, locate};
pub use preview::preview;
pub use project::{has_fields, project};
pub use range::Range;
pub use scan::Isa;
pub use search::{Pattern, search};
pub use survey::{Findings, Nature, Survey};
pub use text::{TextPage, read_text};
pub use truncate::{Limits, truncate};
pub use truncate_lines::truncate_lines;
