//! Arguments that the core takes unsigned.

use headgate_core::{Error, ErrorKind, Result};

/// A count or offset. The name is for the message: whoever passed it has to know which one to mend.
pub fn count(name: &str, value: i64) -> Result<u64> {
    let negative = || Error {
        kind: ErrorKind::InvalidArgument(format!("{name} must not be negative, not {value}")),
        index: 0,
    };
    u64::try_from(value).map_err(|_| negative())
}
