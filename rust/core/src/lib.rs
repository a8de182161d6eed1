//! Slice, index, search and truncate large payloads as bytes, without parsing them.
//!
//! Every verb borrows the payload and returns spans or small answers. Nothing here panics, whatever the bytes.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod error;
pub mod index;
pub mod pointer;
pub mod range;
mod reader;
pub mod scan;
#[cfg(test)]
mod testing;
pub mod validate;

pub use error::{Error, ErrorKind, Result};
pub use range::Range;
pub use scan::Isa;
