//! `headgate._core`: converts in, releases the interpreter, calls the core, wraps out.

mod error;
mod outline;
mod payload;
mod pointer;
mod project;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use super::outline::outline;
    #[pymodule_export]
    use super::pointer::{get, locate};
    #[pymodule_export]
    use super::project::project;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
