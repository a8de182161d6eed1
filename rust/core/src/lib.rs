//! Index, page, search and truncate large JSON, NDJSON, CSV and text payloads without parsing them.
//!
//! Every function borrows the payload as bytes and returns spans or a small result; none builds a tree of a whole
//! document. Payloads are untrusted: no bytes make a function panic.
//!
//! ```
//! use forebay_core::{Limits, Pointer, Range, index_items, locate, outline, read_items, truncate};
//!
//! # fn main() -> forebay_core::Result<()> {
//! let data = br#"{"total": 3, "rows": [{"id": 1}, {"id": 2}, {"id": 3}]}"#;
//! assert_eq!(outline(data, 512)?, "{total: int, rows: [{id: int}] ×3}");
//!
//! // Index the items once, then read any page of them within a byte budget.
//! let index = index_items(data, None, true)?;
//! assert_eq!((index.path(), index.len()), (Some("/rows"), 3));
//! let page = read_items(data, 0, &index, Range::Bounded { offset: 1, limit: 10 }, 1024)?;
//! assert_eq!(page.content, br#"[{"id": 2}, {"id": 3}]"#);
//!
//! // Values are spans of the payload.
//! let id = locate(data, &Pointer::parse("/rows/2/id")?)?;
//! assert_eq!(&data[id], b"3");
//!
//! // An overview is valid JSON within a budget.
//! let limits = Limits { max_array_items: 1, ..Limits::default() };
//! let overview = br#"{"total":3,"rows":{"items":[{"id":1}],"totalCount":3,"showing":1}}"#;
//! assert_eq!(truncate(data, &limits)?, overview);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod checksum;
mod csv;
pub mod error;
pub mod escaping;
pub mod export;
pub mod feed;
pub mod filter;
pub mod footer;
pub mod index;
pub mod items;
pub mod lines;
mod map_entry;
pub mod message;
mod ndjson;
pub mod outline;
pub mod page;
pub mod patch;
pub mod pointer;
pub mod preview;
pub mod preview_items;
pub mod project;
pub mod range;
mod reader;
pub mod redact;
pub mod scan;
pub mod search;
pub mod split;
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
pub use export::{csv_columns, name_rows, to_csv, to_ndjson};
pub use feed::Feed;
pub use filter::Filter;
pub use index::{ItemIndex, ItemIndexer, index_items, index_lines};
pub use items::{ItemPage, read_items};
pub use lines::{LinePage, read_lines};
pub use outline::{outline, outline_indexed, outline_sample};
pub use page::Cut;
pub use patch::patch;
pub use pointer::{Pointer, locate};
pub use preview::{preview, preview_lines};
pub use preview_items::preview_items;
pub use project::{has_fields, project};
pub use range::Range;
pub use redact::Redactor;
pub use scan::Isa;
pub use search::{Pattern, search};
pub use split::ItemSplitter;
pub use survey::{Findings, Nature, Survey};
pub use text::{TextPage, read_text};
pub use truncate::{Limits, truncate};
pub use truncate_lines::truncate_lines;
