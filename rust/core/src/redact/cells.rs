//! Redaction of the cells of CSV and TSV, which readers see without quotes.

use std::borrow::Cow;

use super::{Filter, REPLACEMENT, redact};
use crate::csv::{Fields, RowSplitter, count_line_breaks, push_quoted};
use crate::escaping::push_string;
use crate::index::Kind;
use crate::survey::BYTE_ORDER_MARK;

/// Longest name of a column that is searched whole. Each row's object repeats the names, and the row may have fewer
/// bytes than they have.
const MAX_NAME_BYTES: usize = 256;

/// Returns a payload without the secrets of its cells, or `None` if they have none. The header has cells as well.
///
/// A cell is redacted as a payload of its own, and as the value of its column in the row's JSON object: a match over
/// the name and the value replaces the cell, but not the name, which all rows share. A cell that changes is quoted if
/// it was, or if it must be: the rows and columns stay. Other text than cells is not redacted, so a payload needs
/// [`redact`] as well. A kind without rows has no cells.
///
/// # Errors
/// The first error of the filter.
pub fn redact_cells<F: Filter>(data: &[u8], kind: Kind, filter: &mut F) -> Result<Option<Vec<u8>>, F::Error> {
    let Some(delimiter) = kind.delimiter() else { return Ok(None) };
    let (mut out, mut copied) = (Vec::new(), 0);
    let mut pos = if data.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let mut content = Vec::new();
    let mut names: Option<Vec<Vec<u8>>> = None;
    loop {
        pos += count_line_breaks(&data[pos..]);
        if pos == data.len() {
            break;
        }
        let row_end =
            RowSplitter::inside(delimiter).row_end(&data[pos..]).map_or(data.len(), |len| pos + len);
        let row = &data[pos..row_end];
        let is_spanned = match &names {
            Some(names) if filter.matches_quotes() => find_spanned_cells(names, row, delimiter, filter),
            _ => Vec::new(),
        };
        names.get_or_insert_with(|| read_names(row, delimiter));
        let mut fields = Fields::new(row, delimiter);
        let mut position = 0;
        while let Some(len) = fields.read(&mut content) {
            let redacted = if is_spanned.get(position) == Some(&true) {
                (content != REPLACEMENT.as_bytes()).then(|| REPLACEMENT.into())
            } else {
                redact(&content, filter)?
            };
            position += 1;
            if let Some(redacted) = redacted {
                out.extend_from_slice(&data[copied..pos]);
                push_cell(&redacted, delimiter, data.get(pos) == Some(&b'"'), &mut out);
                copied = pos + len;
            }
            // After the last field this skips a line break instead of a delimiter.
            pos += len + 1;
        }
        pos = row_end;
    }
    if out.is_empty() {
        return Ok(None);
    }
    out.extend_from_slice(&data[copied..]);
    Ok(Some(out))
}

/// Returns the names of the columns as JSON.
///
/// In the objects that readers get, a repeated name gets a number. Here it does not, because a secret may be in each
/// column of that name.
///
/// Of a very long name there are only the start and the end, with a line break between them.
fn read_names(header: &[u8], delimiter: u8) -> Vec<Vec<u8>> {
    let mut fields = Fields::new(header, delimiter);
    let (mut names, mut name) = (Vec::new(), Vec::new());
    while fields.read(&mut name).is_some() {
        names.push(if name.is_empty() { unnamed(names.len()) } else { to_json(&shorten(&name)) });
    }
    names
}

fn shorten(name: &[u8]) -> Cow<'_, [u8]> {
    if name.len() <= MAX_NAME_BYTES {
        return Cow::Borrowed(name);
    }
    let is_inside = |at: usize| name.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let (mut head, mut tail) = (MAX_NAME_BYTES / 2, name.len() - MAX_NAME_BYTES / 2);
    while head > 0 && is_inside(head) {
        head -= 1;
    }
    while is_inside(tail) {
        tail += 1;
    }
    Cow::Owned([&name[..head], b"\n", &name[tail..]].concat())
}

fn unnamed(position: usize) -> Vec<u8> {
    to_json(format!("column_{}", position + 1).as_bytes())
}

fn to_json(text: &[u8]) -> Vec<u8> {
    let mut json = Vec::with_capacity(text.len() + 2);
    push_string(text, &mut json);
    json
}

/// Returns for each cell of a row whether a match over several texts of the row's JSON object touches it.
///
/// The payload does not have that object, so both usual spellings are searched: without spaces after `:` and `,`, and
/// with them.
fn find_spanned_cells<F: Filter>(names: &[Vec<u8>], row: &[u8], delimiter: u8, filter: &mut F) -> Vec<bool> {
    let mut is_spanned = Vec::new();
    let (mut object, mut spans, mut content) = (Vec::with_capacity(2 * row.len()), Vec::new(), Vec::new());
    for [colon, comma] in [[":", ","], [": ", ", "]] {
        object.clear();
        spans.clear();
        let mut fields = Fields::new(row, delimiter);
        while fields.read(&mut content).is_some() {
            object.extend_from_slice(if spans.is_empty() { "{" } else { comma }.as_bytes());
            match names.get(spans.len()) {
                Some(name) => object.extend_from_slice(name),
                None => object.extend_from_slice(&unnamed(spans.len())),
            }
            object.extend_from_slice(colon.as_bytes());
            let start = object.len();
            push_string(&content, &mut object);
            spans.push(start..object.len());
        }
        object.push(b'}');
        is_spanned.resize(spans.len(), false);
        for secret in filter.find_spanning(&object) {
            let first = spans.partition_point(|span| span.end <= secret.start);
            let touched = spans[first..].iter().take_while(|span| span.start < secret.end);
            is_spanned[first..].iter_mut().zip(touched).for_each(|(is_spanned, _)| *is_spanned = true);
        }
    }
    is_spanned
}

/// Appends a cell. An empty one is quoted, because an empty line is not a row. One that starts with a byte order mark
/// is quoted, because at the start of a payload the mark would not be read as part of the cell.
fn push_cell(text: &[u8], delimiter: u8, is_quoted: bool, out: &mut Vec<u8>) {
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\n' | b'\r') || *byte == delimiter;
    if is_quoted || text.is_empty() || text.starts_with(BYTE_ORDER_MARK) || text.iter().any(is_special) {
        push_quoted(text, out);
    } else {
        out.extend_from_slice(text);
    }
}
