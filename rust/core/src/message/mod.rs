//! JSON-RPC messages as bytes: small values stay in a skeleton, large ones become spans.
//!
//! A message is in memory or in a file. Everything reads through [`BufRead`](std::io::BufRead), a piece at a
//! time, and holds no more than a few pieces in memory.

pub mod compare;
pub mod dissect;
pub mod members;
mod minify;
mod scanner;
pub mod source;
pub mod unescape;

pub use compare::{only_member, same_json, same_text, text_matches, texts_match_items};
pub use dissect::{Dissection, Limits, dissect};
pub use members::{items, members, values_at};
pub use source::{Source, Value};
pub(crate) use unescape::measure_escape;
pub use unescape::{Unescaper, unescape, unescape_into, unescaped_len};
