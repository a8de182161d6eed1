//! Serialized form of an index: a header, then the differences between entries as variable-length integers.

use super::{BLOCK_BYTES, Entry, ItemIndex, Kind};
use crate::error::{Error, Result};

/// First bytes of every serialized index. Stored payloads contain it, so a new layout needs a new number.
const MAGIC: &[u8; 4] = b"hgi1";

impl ItemIndex {
    /// Serializes the index; [`ItemIndex::from_bytes`] loads it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(match self.kind {
            None => 0,
            Some(Kind::Array) => 1,
            Some(Kind::Ndjson) => 2,
            Some(Kind::Lines) => 3,
            Some(Kind::Csv) => 4,
            Some(Kind::Tsv) => 5,
            Some(Kind::Map) => 6,
        });
        // The length is stored plus one; 0 means no path, which is not the same as the empty path.
        push_number(&mut out, self.path.as_ref().map_or(0, |path| path.len() as u64 + 1));
        out.extend_from_slice(self.path.as_deref().unwrap_or_default().as_bytes());
        for number in [self.start, self.end - self.start, self.count, self.entries.len() as u64] {
            push_number(&mut out, number);
        }
        let (mut block, mut number) = (self.start / BLOCK_BYTES, 0);
        for entry in &self.entries {
            push_number(&mut out, entry.offset / BLOCK_BYTES - block);
            push_number(&mut out, entry.offset % BLOCK_BYTES);
            push_number(&mut out, entry.number - number);
            (block, number) = (entry.offset / BLOCK_BYTES, entry.number);
        }
        out.extend_from_slice(&self.header);
        out
    }

    /// Loads an index that [`ItemIndex::to_bytes`] wrote.
    ///
    /// # Errors
    /// `CorruptIndex` for any other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(|| Error::index("unknown format"))?;
        let kind = match take(&mut rest, 1)?[0] {
            0 => None,
            1 => Some(Kind::Array),
            2 => Some(Kind::Ndjson),
            3 => Some(Kind::Lines),
            4 => Some(Kind::Csv),
            5 => Some(Kind::Tsv),
            6 => Some(Kind::Map),
            _ => return Err(Error::index("unknown kind")),
        };
        let path = match take_number(&mut rest)? {
            0 => None,
            len => {
                let path = take(&mut rest, usize::try_from(len - 1).unwrap_or(usize::MAX))?;
                Some(str::from_utf8(path).map_err(|_| Error::index("path is not text"))?.to_owned())
            }
        };
        let start = take_number(&mut rest)?;
        let end = add(start, take_number(&mut rest)?)?;
        let count = take_number(&mut rest)?;
        let entries = take_entries(&mut rest, start)?;
        // The header of rows takes the rest.
        if !rest.is_empty() && kind.and_then(Kind::delimiter).is_none() {
            return Err(Error::index("more bytes than entries"));
        }
        let index = Self { kind, path, start, end, count, entries, header: rest.to_vec() }.validate()?;
        // A number has several encodings; only the one that `to_bytes` writes is accepted.
        if index.to_bytes() != bytes {
            return Err(Error::index("not as it was written"));
        }
        Ok(index)
    }
}

fn take_entries(rest: &mut &[u8], start: u64) -> Result<Vec<Entry>> {
    let len = take_number(rest)?;
    // An entry takes at least three bytes, so a larger count is rejected before anything is allocated.
    if len > rest.len() as u64 / 3 {
        return Err(Error::index("fewer bytes than entries"));
    }
    let mut entries = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
    let (mut block, mut number) = (start / BLOCK_BYTES, 0);
    for _ in 0..len {
        block = add(block, take_number(rest)?)?;
        let base = block.checked_mul(BLOCK_BYTES).ok_or_else(|| Error::index("number too large"))?;
        let offset = add(base, take_number(rest)?)?;
        number = add(number, take_number(rest)?)?;
        entries.push(Entry { offset, number });
    }
    Ok(entries)
}

fn add(a: u64, b: u64) -> Result<u64> {
    a.checked_add(b).ok_or_else(|| Error::index("number too large"))
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len).ok_or_else(|| Error::index("ends too early"))?;
    *rest = left;
    Ok(taken)
}

/// Appends an integer as LEB128: seven bits per byte, low bits first; the top bit says that more follow.
fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Error::index("number too large"))
}
