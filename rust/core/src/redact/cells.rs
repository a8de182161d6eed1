//! The cells of CSV and TSV, which readers see without quotes.

use super::{Filter, redact};
use crate::csv::{Fields, RowSplitter, count_line_breaks, push_quoted};
use crate::index::Kind;
use crate::survey::BYTE_ORDER_MARK;

/// Returns a payload without the secrets of its cells, or `None` if they have none. The header has cells as well.
///
/// A cell is redacted as a payload of its own. One that changes is quoted if it was, or if it must be: the rows and
/// columns stay. Only single cells are redacted, so a payload needs [`redact`] as well. A kind without rows has no
/// cells.
///
/// # Errors
/// The first error of the filter.
pub fn redact_cells<F: Filter>(data: &[u8], kind: Kind, filter: &mut F) -> Result<Option<Vec<u8>>, F::Error> {
    let Some(delimiter) = kind.delimiter() else { return Ok(None) };
    let (mut out, mut copied) = (Vec::new(), 0);
    let mut pos = if data.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let mut content = Vec::new();
    loop {
        pos += count_line_breaks(&data[pos..]);
        if pos == data.len() {
            break;
        }
        let row_end =
            RowSplitter::inside(delimiter).row_end(&data[pos..]).map_or(data.len(), |len| pos + len);
        let mut fields = Fields::new(&data[pos..row_end], delimiter);
        while let Some(len) = fields.read(&mut content) {
            if let Some(redacted) = redact(&content, filter)? {
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
