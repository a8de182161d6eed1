//! Converters of arguments. Each has the name of its argument, for error messages.

use std::fmt::Debug;

use forebay_core::index::Kind;
use forebay_core::{Error, ErrorKind, Range, Result};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// PyO3 does not tell a converter the name of the argument, so each argument has its own: `int::max_bytes`.
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
    int -> i64: base block context escape_levels head limit max_array_items max_bytes max_depth max_object_keys
        max_string_chars offset skip tail;
    optional_int -> Option<i64>: items_start last max_escaped_bytes;
    text -> &'a str: conditions mode pattern pointer;
    optional_text -> Option<&'a str>: path rows whole;
}

/// Converts an integer of any size. Beyond 64 bits it becomes the largest or smallest 64-bit integer.
fn int(name: &str, object: &Bound<'_, PyAny>) -> PyResult<i64> {
    let py = object.py();
    match object.extract::<i64>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => {
            let is_negative = object.call_method0("__index__")?.lt(0)?;
            Ok(if is_negative { i64::MIN } else { i64::MAX })
        }
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Err(type_error(name, "an integer", object)),
        extracted => extracted,
    }
}

fn optional_int(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_none() { Ok(None) } else { int(name, object).map(Some) }
}

fn text<'a>(name: &str, object: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    object.cast::<PyString>().map_err(|_| type_error(name, "a str", object))?.to_str()
}

fn optional_text<'a>(name: &str, object: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a str>> {
    if object.is_none() { Ok(None) } else { text(name, object).map(Some) }
}

/// Converts an iterable of fields. A `str` is refused, because it would give its characters.
pub fn fields(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let is_text = object.is_instance_of::<PyString>();
    let Some(iterator) = object.try_iter().ok().filter(|_| !is_text) else {
        return Err(type_error("fields", "a list of fields such as [\"id\", \"user.name\"]", object));
    };
    iterator.map(|field| Ok(text("each of fields", &field?)?.to_owned())).collect()
}

#[cold]
fn type_error(name: &str, kind: &str, object: &Bound<'_, PyAny>) -> PyErr {
    match object.get_type().name() {
        Ok(class) => PyTypeError::new_err(format!("{name} must be {kind}, not {class}")),
        Err(error) => error,
    }
}

/// Converts the name of a format with rows.
pub fn to_row_kind(rows: &str) -> Result<Kind> {
    match rows {
        "csv" => Ok(Kind::Csv),
        "tsv" => Ok(Kind::Tsv),
        other => {
            let why = format!("rows must be \"csv\" or \"tsv\", not {other:.32?}");
            Err(Error { kind: ErrorKind::InvalidArgument(why), index: 0 })
        }
    }
}

/// Converts a count or offset.
pub fn to_u64(name: &str, value: i64) -> Result<u64> {
    let negative = || Error {
        kind: ErrorKind::InvalidArgument(format!("{name} must not be negative, not {value}")),
        index: 0,
    };
    u64::try_from(value).map_err(|_| negative())
}

/// Converts a number of bytes, items or characters in memory.
pub fn to_usize(name: &str, value: i64) -> Result<usize> {
    Ok(usize::try_from(to_u64(name, value)?).unwrap_or(usize::MAX))
}

/// Formats an optional value as Python prints it.
pub fn repr<T: Debug>(value: Option<&T>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| format!("{value:?}"))
}

/// Converts the range of a page: the `last` items or lines, or `limit` from `offset` on.
pub fn page_range(offset: i64, limit: i64, last: Option<i64>) -> Result<Range> {
    match last {
        Some(last) => Ok(Range::Suffix(to_u64("last", last)?)),
        None => Ok(Range::Bounded { offset: to_u64("offset", offset)?, limit: to_u64("limit", limit)? }),
    }
}
