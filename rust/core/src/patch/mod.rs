//! JSON Patch (RFC 6902): changes to a document by splicing its bytes.
//!
//! Everything that no operation names keeps its bytes: white space, the order of keys, the spelling of numbers
//! and escapes. A patch of a parsed document, such as the crate `json-patch` applies, would write all of it
//! anew: it rounds numbers, sorts keys and drops the formatting. That crate is the reference in the tests.

mod equal;
mod operation;

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, Result, quote};
use crate::escaping::push_string;
use crate::ndjson::{is_ndjson, is_space};
use crate::pointer::{Pointer, Token, enter};
use crate::reader::{Kind, Reader, check_json};
use crate::scan::Isa;
use operation::{Action, Operation};

/// Bytes of the current value that a failed `test` shows.
const MAX_SHOWN_BYTES: usize = 100;

/// Returns a JSON document with the operations of a patch (a JSON array, RFC 6902) applied in order. If any of
/// them fails, the whole patch does.
///
/// An operation on a key that an object has more than once reads the first of these members. If it changes
/// that member, it removes the others, so that every reader of the result finds the same value. A new member
/// or item is spaced like its neighbours. `test` compares numbers by their exact value.
///
/// # Errors
/// `InvalidJson` if the document is not one JSON value, `InvalidArgument` for a malformed patch, and
/// `PatchFailed` if an operation does not fit the document or makes it larger than `max_bytes`.
pub fn patch(data: &[u8], operations: &[u8], max_bytes: u64) -> Result<Vec<u8>> {
    patch_with(Isa::detect(), data, operations, max_bytes)
}

fn patch_with(isa: Isa, data: &[u8], operations: &[u8], max_bytes: u64) -> Result<Vec<u8>> {
    let operations = operation::parse(isa, operations)?;
    let mut bytes = data.to_vec();
    // The copy is validated, because the owner of the payload may change it meanwhile.
    check_json(isa, &bytes, 0..bytes.len())?;
    if is_ndjson(&bytes, isa) {
        return Err(Error::argument(
            "a patch changes one JSON document, and this is NDJSON; patch one line of it",
        ));
    }
    let mut spare = Vec::new();
    for operation in &operations {
        let moved: Vec<u8>;
        let document = Document { bytes: &bytes, operation, isa };
        let edits = match &operation.action {
            Action::Test(value) => {
                document.test(value)?;
                continue;
            }
            Action::Add(value) => document.add(value)?,
            Action::Remove => document.remove(&operation.path)?,
            Action::Replace(value) => document.replace(value)?,
            Action::Copy(from) => document.add(document.get(from)?)?,
            Action::Move(from) => {
                moved = document.get(from)?.to_vec();
                if *from == operation.path {
                    continue;
                }
                document.check_move(from)?;
                splice(&bytes, &document.remove(from)?, &mut spare);
                std::mem::swap(&mut bytes, &mut spare);
                Document { bytes: &bytes, operation, isa }.add(&moved)?
            }
        };
        let size =
            edits.iter().fold(bytes.len(), |size, edit| (size - edit.span.len()).saturating_add(edit.len()));
        if size as u64 > max_bytes {
            let reason =
                format!("the document would have {size} bytes, more than {max_bytes}; add less to it");
            return Err(operation.fail(&reason));
        }
        splice(&bytes, &edits, &mut spare);
        std::mem::swap(&mut bytes, &mut spare);
    }
    Ok(bytes)
}

/// A change of a document: the bytes of `span` are replaced by the pieces.
struct Edit<'a> {
    span: Range<usize>,
    pieces: Vec<Cow<'a, [u8]>>,
}

impl<'a> Edit<'a> {
    fn cut(span: Range<usize>) -> Self {
        Self { span, pieces: Vec::new() }
    }

    fn replace(span: Range<usize>, value: &'a [u8]) -> Self {
        Self { span, pieces: vec![value.into()] }
    }

    fn insert(at: usize, pieces: Vec<Cow<'a, [u8]>>) -> Self {
        Self { span: at..at, pieces }
    }

    fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }
}

/// Writes the document with its edits, which are in order, to `out`.
fn splice(bytes: &[u8], edits: &[Edit<'_>], out: &mut Vec<u8>) {
    out.clear();
    let mut pos = 0;
    for edit in edits {
        out.extend_from_slice(&bytes[pos..edit.span.start]);
        edit.pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        pos = edit.span.end;
    }
    out.extend_from_slice(&bytes[pos..]);
}

/// A valid document, and the operation to apply to it.
struct Document<'a> {
    bytes: &'a [u8],
    operation: &'a Operation<'a>,
    isa: Isa,
}

impl<'a> Document<'a> {
    fn get(&self, path: &Pointer) -> Result<&'a [u8]> {
        let span = self.find(path.tokens())?.ok_or_else(|| self.missing(path))?;
        Ok(&self.bytes[span])
    }

    fn test(&self, expected: &[u8]) -> Result<()> {
        let value = self.get(&self.operation.path)?;
        match equal::equal(self.isa, value, expected)? {
            Some(true) => Ok(()),
            Some(false) => Err(self
                .operation
                .fail(&format!("the value is {}; correct the patch for what is there now", shorten(value)))),
            None => Err(self.operation.fail(&format!(
                "the value has more than {} levels; test values inside it",
                equal::MAX_DEPTH
            ))),
        }
    }

    fn check_move(&self, from: &Pointer) -> Result<()> {
        let to = &self.operation.path;
        if to.tokens().starts_with(from.tokens()) {
            return Err(self
                .operation
                .fail("a value cannot move into itself; copy it, or choose another path"));
        }
        Ok(())
    }

    fn add(&self, value: &'a [u8]) -> Result<Vec<Edit<'a>>> {
        let Some((last, parents)) = self.operation.path.tokens().split_last() else {
            return self.replace(value);
        };
        let mut reader = self.reader();
        let kind = if enter(&mut reader, self.bytes, parents)? { Some(reader.kind()?) } else { None };
        match kind {
            Some(Kind::Object) => Ok(self.read_members(reader, last, Some(value))?.edits),
            Some(Kind::Array) => Ok(vec![self.insert_item(&reader, last, value)?]),
            Some(_) => {
                Err(self.operation.fail("what it is added to is no object or array; replace that first"))
            }
            None => Err(self.operation.fail("what it is added to is missing; add that first")),
        }
    }

    fn replace(&self, value: &'a [u8]) -> Result<Vec<Edit<'a>>> {
        let path = &self.operation.path;
        let span = self.find(path.tokens())?.ok_or_else(|| self.missing(path))?;
        if let Some((last, parents)) = path.tokens().split_last() {
            let mut reader = self.reader();
            if enter(&mut reader, self.bytes, parents)? && reader.kind()? == Kind::Object {
                return Ok(self.read_members(reader, last, Some(value))?.edits);
            }
        }
        Ok(vec![Edit::replace(span, value)])
    }

    fn remove(&self, path: &Pointer) -> Result<Vec<Edit<'a>>> {
        let Some((last, parents)) = path.tokens().split_last() else {
            return Err(self.operation.fail("the whole document cannot be removed; replace it"));
        };
        let mut reader = self.reader();
        let kind = if enter(&mut reader, self.bytes, parents)? { Some(reader.kind()?) } else { None };
        let edits = match kind {
            Some(Kind::Object) => {
                let members = self.read_members(reader, last, None)?;
                members.is_found.then_some(members.edits)
            }
            Some(Kind::Array) => self.remove_item(reader, last)?.map(|edit| vec![edit]),
            _ => None,
        };
        edits.ok_or_else(|| self.missing(path))
    }

    /// Returns the edits that give the member `token` a value, or remove it. The reader is at the object.
    fn read_members(
        &self,
        mut reader: Reader<'_>,
        token: &Token,
        value: Option<&'a [u8]>,
    ) -> Result<Members<'a>> {
        reader.open();
        let inside = reader.pos();
        let mut members = Members { edits: Vec::new(), is_found: false };
        // Whether a member before this one stays, and the start of a removed member before which none stays.
        let (mut has_kept, mut removed_start) = (false, None);
        let mut last: Option<(Range<usize>, Range<usize>)> = None;
        while let Some(key) = reader.next_key(last.is_none())? {
            let key = key.start - 1..key.end + 1;
            let span = reader.skip()?;
            // The white space before a removed member is left for the next one.
            if let Some(start) = removed_start.take() {
                members.edits.push(Edit::cut(start..key.start));
            }
            if !token.matches_key(&self.bytes[key.start + 1..key.end - 1]) {
                has_kept = true;
            } else if let Some(value) = value.filter(|_| !members.is_found) {
                members.edits.push(Edit::replace(span.clone(), value));
                (members.is_found, has_kept) = (true, true);
            } else {
                members.is_found = true;
                match &last {
                    Some((_, before)) if has_kept => members.edits.push(Edit::cut(before.end..span.end)),
                    _ => removed_start = Some(key.start),
                }
            }
            last = Some((key, span));
        }
        if removed_start.is_some() {
            members.edits = vec![Edit::cut(inside..reader.pos() - 1)];
        }
        if let Some(value) = value.filter(|_| !members.is_found) {
            let mut name = Vec::new();
            push_string(token.key().as_bytes(), &mut name);
            members.edits.push(match last {
                Some((key, span)) => {
                    let colon = &self.bytes[key.end..span.start];
                    let pieces = [b",", self.space_before(key.start)].map(Cow::from).to_vec();
                    Edit::insert(span.end, [pieces, vec![name.into(), colon.into(), value.into()]].concat())
                }
                None => Edit {
                    span: inside..reader.pos() - 1,
                    pieces: vec![name.into(), b": ".into(), value.into()],
                },
            });
        }
        Ok(members)
    }

    /// Returns the edit that inserts an item before the one that `token` names. The reader is at the array.
    fn insert_item(&self, array: &Reader<'_>, token: &Token, value: &'a [u8]) -> Result<Edit<'a>> {
        if let Some(start) = self.find_item(array.clone(), token)? {
            return Ok(Edit::insert(start, vec![value.into(), b",".into(), self.space_before(start).into()]));
        }
        let mut reader = array.clone();
        reader.open();
        let inside = reader.pos();
        let len = if reader.take(b']')? { 0 } else { reader.skip_rest()? + 1 };
        if token.key() != "-" && token.index() != Some(len) {
            let reason = format!("the array has {len} items; add at 0 to {len}, or at \"-\" for its end");
            return Err(self.operation.fail(&reason));
        }
        let end = reader.pos() - 1;
        if len == 0 {
            return Ok(Edit::replace(inside..end, value));
        }
        reader.jump(inside);
        reader.skip_values(len - 1)?;
        reader.peek()?;
        let space = self.space_before(reader.pos());
        Ok(Edit::insert(self.space_start(end), vec![b",".into(), space.into(), value.into()]))
    }

    /// Returns the edit that removes an item; `None` if there is none. The reader is at the array.
    fn remove_item(&self, mut reader: Reader<'_>, token: &Token) -> Result<Option<Edit<'a>>> {
        let inside = reader.pos() + 1;
        let Some(start) = self.find_item(reader.clone(), token)? else {
            return Ok(None);
        };
        reader.jump(start);
        let end = reader.skip()?.end;
        if reader.take(b',')? {
            reader.peek()?;
            return Ok(Some(Edit::cut(start..reader.pos())));
        }
        // The last item goes with the comma before it, and the only one with all white space.
        let comma = self.space_start(start) - 1;
        let cut = if comma < inside { inside..reader.pos() } else { self.space_start(comma)..end };
        Ok(Some(Edit::cut(cut)))
    }

    /// Returns the start of an item; `None` if there is none. The reader is at the array.
    fn find_item(&self, mut array: Reader<'_>, token: &Token) -> Result<Option<usize>> {
        if !enter(&mut array, self.bytes, std::slice::from_ref(token))? {
            return Ok(None);
        }
        array.peek()?;
        Ok(Some(array.pos()))
    }

    fn find(&self, tokens: &[Token]) -> Result<Option<Range<usize>>> {
        let mut reader = self.reader();
        if enter(&mut reader, self.bytes, tokens)? { reader.skip().map(Some) } else { Ok(None) }
    }

    fn reader(&self) -> Reader<'a> {
        Reader::new(self.bytes, self.isa)
    }

    /// Returns the white space before a position.
    fn space_before(&self, at: usize) -> &'a [u8] {
        &self.bytes[self.space_start(at)..at]
    }

    fn space_start(&self, at: usize) -> usize {
        let last = self.bytes[..at].iter().rposition(|byte| !is_space(*byte));
        last.map_or(0, |last| last + 1)
    }

    fn missing(&self, path: &Pointer) -> Error {
        let reason = format!("nothing is at {}; outline() shows which paths exist", quote(path.as_str()));
        self.operation.fail(&reason)
    }
}

/// What was found of a member, and the edits that change it.
struct Members<'a> {
    edits: Vec<Edit<'a>>,
    is_found: bool,
}

/// Returns a value as a message shows it; a long one is cut and ends in `…`.
fn shorten(value: &[u8]) -> String {
    match value.get(..MAX_SHOWN_BYTES) {
        Some(start) if start.len() < value.len() => {
            format!("{}…", String::from_utf8_lossy(start).trim_end_matches('\u{fffd}'))
        }
        _ => String::from_utf8_lossy(value).into_owned(),
    }
}

#[cfg(test)]
mod tests;
