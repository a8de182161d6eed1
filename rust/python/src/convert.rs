//! Integers as Python hands them over.

use std::fmt::Debug;

use headgate_core::{Error, ErrorKind, Range, Result};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

/// An integer of any size: one beyond 64 bits is as good as the largest, or smallest, there is.
pub fn int(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    match object.extract::<i64>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
            let is_negative = object.call_method0("__index__")?.lt(0)?;
            Ok(if is_negative { i64::MIN } else { i64::MAX })
        }
        extracted => Ok(extracted?),
    }
}

/// The same where there may be none.
pub fn optional_int(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_none() { Ok(None) } else { int(object).map(Some) }
}

/// A count or offset. The name is for the message: whoever passed it has to know which one to mend.
pub fn count(name: &str, value: i64) -> Result<u64> {
    let negative = || Error {
        kind: ErrorKind::InvalidArgument(format!("{name} must not be negative, not {value}")),
        index: 0,
    };
    u64::try_from(value).map_err(|_| negative())
}

/// A number of things in memory.
pub fn size(name: &str, value: i64) -> Result<usize> {
    Ok(usize::try_from(count(name, value)?).unwrap_or(usize::MAX))
}

/// A value as Python would print it, where there may be none.
pub fn repr<T: Debug>(value: Option<&T>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| format!("{value:?}"))
}

/// Which items or lines a page is asked for: `last` of them, or `limit` from `offset` on.
pub fn page(offset: i64, limit: i64, last: Option<i64>) -> Result<Range> {
    match last {
        Some(last) => Ok(Range::Suffix(count("last", last)?)),
        None => Ok(Range::Bounded { offset: count("offset", offset)?, limit: count("limit", limit)? }),
    }
}
