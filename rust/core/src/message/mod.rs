//! A message of a protocol in JSON, taken apart on bytes: what is small is shown, what is large is a span.
//!
//! A message may be in memory or in a file: everything reads through [`BufRead`](std::io::BufRead), a piece at a
//! time, and none of it keeps more than a few pieces.

pub mod dissect;
pub mod members;
mod minified;
pub mod same;
mod scanner;
pub mod source;
pub mod unescape;

pub use dissect::{Dissected, Limits, dissect};
pub use members::members;
pub use same::{each_says, only_member, same_json, same_text, says};
pub use source::{Source, Value};
pub use unescape::{Unescaper, unescape};
