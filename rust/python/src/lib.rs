//! `forebay._core`: converts arguments, releases the interpreter, calls the core and wraps the result.

mod convert;
mod error;
mod export;
mod feed;
mod filter;
mod footer;
mod index;
mod items;
mod lines;
mod message;
mod outline;
mod page;
mod patch;
mod payload;
mod pointer;
mod preview;
mod project;
mod redact;
mod search;
mod survey;
mod text;
mod truncate;
mod truncate_lines;

use pyo3::prelude::*;

/// Refuses to compile a class that needs more than the 16 bytes to which Python aligns its objects: PyO3 writes it there
/// all the same, which is undefined behaviour.
macro_rules! assert_alignment {
    ($($class:ty),+ $(,)?) => { const _: () = { $(assert!(align_of::<$class>() <= 16);)+ }; };
}

assert_alignment!(
    feed::Feed,
    filter::Filter,
    filter::Selection,
    index::Chunk,
    index::ItemIndex,
    index::ItemIndexer,
    index::Span,
    items::ItemPage,
    lines::LinePage,
    message::Unescaper,
    page::Cut,
    redact::Redactor,
    search::LiteralCounter,
    search::Match,
    search::MatchCount,
    search::SearchResult,
    survey::Findings,
    survey::Survey,
    text::TextPage,
);

#[pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use super::export::{csv_columns, name_rows, to_csv, to_ndjson};
    #[pymodule_export]
    use super::feed::Feed;
    #[pymodule_export]
    use super::filter::{Filter, Selection};
    #[pymodule_export]
    use super::footer::{build_footer, parse_footer};
    #[pymodule_export]
    use super::index::{Chunk, ItemIndex, ItemIndexer, Span, index_items, index_lines};
    #[pymodule_export]
    use super::items::{ItemPage, read_items};
    #[pymodule_export]
    use super::lines::{LinePage, read_lines};
    #[pymodule_export]
    use super::message::{
        Unescaper, dissect, items, members, only_member, same_json, same_text, texts_match_items, unescape,
        values_at,
    };
    #[pymodule_export]
    use super::outline::outline;
    #[pymodule_export]
    use super::page::Cut;
    #[pymodule_export]
    use super::patch::patch;
    #[pymodule_export]
    use super::pointer::{get, locate};
    #[pymodule_export]
    use super::preview::{preview, preview_items};
    #[pymodule_export]
    use super::project::{has_fields, project};
    #[pymodule_export]
    use super::redact::{Redactor, replace_texts};
    #[pymodule_export]
    use super::search::{LiteralCounter, Match, MatchCount, SearchResult, count_matches, search};
    #[pymodule_export]
    use super::survey::{Findings, Survey, checksum};
    #[pymodule_export]
    use super::text::{TextPage, escaped_size, read_text};
    #[pymodule_export]
    use super::truncate::truncate;
    #[pymodule_export]
    use super::truncate_lines::truncate_lines;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
