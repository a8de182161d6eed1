//! Arguments as Python hands them over, converted by name: whoever passed one has to know which to mend.

use std::fmt::Debug;

use forebay_core::{Error, ErrorKind, Range, Result};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// PyO3 does not tell a converter which argument it converts, so each has one of its own: `int::max_bytes`.
macro_rules! converters {
    ($($convert:ident -> $returned:ty: $($name:ident)+;)+) => {$(
        pub mod $convert {
            use super::*;
            $(
                #[allow(clippy::needless_lifetimes, reason = "a borrowed text needs it, an integer does not")]
                pub fn $name<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<$returned> {
                    super::$convert(stringify!($name), object)
                }
            )+
        }
    )+};
}

converters! {
    int -> i64: base context escape_levels head limit max_array_items max_bytes max_depth max_object_keys
        max_string_chars offset start tail;
    optional_int -> Option<i64>: last max_escaped_bytes;
    text -> &'a str: pattern pointer;
    optional_text -> Option<&'a str>: path;
}

/// An integer of any size: one beyond 64 bits is as good as the largest, or smallest, there is.
fn int(name: &str, object: &Bound<'_, PyAny>) -> PyResult<i64> {
    let py = object.py();
    match object.extract::<i64>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => {
            let is_negative = object.call_method0("__index__")?.lt(0)?;
            Ok(if is_negative { i64::MIN } else { i64::MAX })
        }
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Err(not_a(name, "an integer", object)),
        extracted => extracted,
    }
}

fn optional_int(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_none() { Ok(None) } else { int(name, object).map(Some) }
}

fn text<'a>(name: &str, object: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    object.cast::<PyString>().map_err(|_| not_a(name, "a str", object))?.to_str()
}

fn optional_text<'a>(name: &str, object: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a str>> {
    if object.is_none() { Ok(None) } else { text(name, object).map(Some) }
}

/// Fields from any iterable but a `str`, which is one as well: of its letters.
pub fn fields(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let is_text = object.is_instance_of::<PyString>();
    let Some(given) = object.try_iter().ok().filter(|_| !is_text) else {
        return Err(not_a("fields", "a list of fields such as [\"id\", \"user.name\"]", object));
    };
    given.map(|field| Ok(text("each of fields", &field?)?.to_owned())).collect()
}

#[cold]
fn not_a(name: &str, kind: &str, object: &Bound<'_, PyAny>) -> PyErr {
    match object.get_type().name() {
        Ok(given) => PyTypeError::new_err(format!("{name} must be {kind}, not {given}")),
        Err(error) => error,
    }
}

/// A count or offset.
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
