//! Converts errors of the core to Python exceptions.

use forebay_core::{Error, ErrorKind};
use pyo3::prelude::*;

/// Carries a core error through `?`. The exception is created with the interpreter attached.
pub struct CoreError(Error);

impl From<Error> for CoreError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<CoreError> for PyErr {
    fn from(CoreError(error): CoreError) -> Self {
        let class = match error.kind {
            ErrorKind::InvalidJson(_) => "InvalidJSON",
            ErrorKind::InvalidText => "InvalidText",
            ErrorKind::InvalidArgument(_) => "InvalidArgument",
            ErrorKind::PathNotFound(_) | ErrorKind::NoItems(_) => "PathNotFound",
            ErrorKind::PatchFailed(_) => "PatchFailed",
            ErrorKind::InvalidPattern(_) => "InvalidPattern",
            ErrorKind::CorruptIndex(_) => "CorruptIndex",
            ErrorKind::Unreadable(_) => "StoreUnavailable",
        };
        Python::attach(|py| {
            // The classes are defined in Python, because each has two bases, which PyO3 cannot declare.
            let exception = py
                .import("forebay.errors")
                .and_then(|errors| errors.getattr(class))
                .and_then(|class| class.call1((error.to_string(), error.index)));
            match exception {
                Ok(exception) => PyErr::from_value(exception),
                Err(failure) => failure,
            }
        })
    }
}
