//! `headgate._core`: converts in, releases the interpreter, calls the core, wraps out.

mod error;
mod payload;
mod search;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use super::search::{Match, SearchResult, search};
}
