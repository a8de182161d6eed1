//! The operations of a patch, parsed and checked before any of them is applied.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, Result, quote};
use crate::ndjson::is_ndjson;
use crate::pointer::{Pointer, unescape};
use crate::reader::{Kind, Reader, check_json};
use crate::scan::Isa;

/// Maximum number of operations. Each one may read the whole document.
const MAX_OPERATIONS: usize = 1000;

const EXAMPLE: &str = r#"[{"op": "replace", "path": "/title", "value": "New"}]"#;

/// The names of the operations, for messages.
const NAMES: &str = "add, remove, replace, move, copy or test";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Operation<'a> {
    pub(super) number: usize,
    pub(super) path: Pointer,
    pub(super) action: Action<'a>,
}

/// What to do at the path of an operation. A value is JSON, as it is spelled in the patch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action<'a> {
    Add(&'a [u8]),
    Remove,
    Replace(&'a [u8]),
    Move(Pointer),
    Copy(Pointer),
    Test(&'a [u8]),
}

impl Action<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "add",
            Self::Remove => "remove",
            Self::Replace(_) => "replace",
            Self::Move(_) => "move",
            Self::Copy(_) => "copy",
            Self::Test(_) => "test",
        }
    }
}

impl Operation<'_> {
    /// Returns the error that this operation does not apply.
    pub(super) fn fail(&self, reason: &str) -> Error {
        let Self { number, path, action } = self;
        Error::patch(format!(
            "patch[{number}] ({} {}) failed, so nothing was changed: {reason}",
            action.name(),
            quote(path.as_str())
        ))
    }
}

/// Members of an operation, raw; each at most once.
#[derive(Default)]
struct Members {
    op: Option<Range<usize>>,
    path: Option<Range<usize>>,
    from: Option<Range<usize>>,
    value: Option<Range<usize>>,
}

/// Parses a patch: a JSON array of operations.
pub(super) fn parse(isa: Isa, patch: &[u8]) -> Result<Vec<Operation<'_>>> {
    let no_list = || Error::argument(format!("a patch is a list of operations, such as {EXAMPLE}"));
    check_json(isa, patch, 0..patch.len()).map_err(|_| no_list())?;
    let mut reader = Reader::new(patch, isa);
    if is_ndjson(patch, isa) || reader.kind()? != Kind::Array {
        return Err(no_list());
    }
    reader.open();
    let mut operations = Vec::new();
    while reader.next_item(operations.is_empty())? {
        let number = operations.len();
        if number == MAX_OPERATIONS {
            return Err(Error::argument(format!(
                "a patch has at most {MAX_OPERATIONS} operations; send several"
            )));
        }
        operations.push(parse_operation(&mut reader, patch, number)?);
    }
    Ok(operations)
}

fn parse_operation<'a>(reader: &mut Reader<'a>, patch: &'a [u8], number: usize) -> Result<Operation<'a>> {
    let reject = |reason: &str| Error::argument(format!("patch[{number}] {reason}"));
    if reader.kind()? != Kind::Object {
        return Err(reject(&format!("is no operation; write objects, as in {EXAMPLE}")));
    }
    let members = read_members(reader, patch)?.ok_or_else(|| {
        reject("has \"op\", \"path\", \"from\" or \"value\" twice; write each of them once")
    })?;
    let text = |member: Option<Range<usize>>| {
        let raw = &patch[member?];
        unescape(raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?)
    };
    let pointer = |name: &str, member: Option<Range<usize>>| {
        let text =
            text(member).ok_or_else(|| reject(&format!("needs {name:?}, a text such as \"/rows/3\"")))?;
        Pointer::parse(&text).map_err(|error| reject(&format!("({name}): {error}")))
    };
    let value = || {
        let value = members.value.clone().ok_or_else(|| reject("needs \"value\", which may be null"))?;
        Ok(&patch[value])
    };
    let op = text(members.op.clone()).unwrap_or(Cow::Borrowed(""));
    let action = match &*op {
        "add" => Action::Add(value()?),
        "remove" => Action::Remove,
        "replace" => Action::Replace(value()?),
        "move" => Action::Move(pointer("from", members.from.clone())?),
        "copy" => Action::Copy(pointer("from", members.from.clone())?),
        "test" => Action::Test(value()?),
        _ => return Err(reject(&format!("has no known \"op\"; it is {NAMES}"))),
    };
    Ok(Operation { number, path: pointer("path", members.path.clone())?, action })
}

/// Reads the members that operations have, and skips others; `None` if one of them is repeated.
fn read_members(reader: &mut Reader<'_>, patch: &[u8]) -> Result<Option<Members>> {
    let mut members = Members::default();
    let (mut is_first, mut is_repeated) = (true, false);
    reader.open();
    while let Some(key) = reader.next_key(is_first)? {
        is_first = false;
        let span = reader.skip()?;
        let member = match unescape(&patch[key]).as_deref() {
            Some("op") => &mut members.op,
            Some("path") => &mut members.path,
            Some("from") => &mut members.from,
            Some("value") => &mut members.value,
            _ => continue,
        };
        is_repeated |= member.replace(span).is_some();
    }
    Ok((!is_repeated).then_some(members))
}
