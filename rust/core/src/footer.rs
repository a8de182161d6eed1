//! The footer of a stored file: metadata, indexes and a seek table, in two skippable frames of zstd.
//!
//! `docs/format.md` specifies it. The seek table is that of the zstd seekable format. It lists the metadata frame with a
//! payload of 0 bytes, so that other readers of the format compute the right offsets.

use std::ops::Range;

use crate::checksum;
use crate::error::{Error, Result};

const METADATA_MAGIC: u32 = 0x184D_2A57;
const SEEK_TABLE_MAGIC: u32 = 0x184D_2A5E;
const SEEKABLE_MAGIC: u32 = 0x8F92_EAB1;
const HAS_CHECKSUMS: u8 = 0x80;

/// Magic number and size of a skippable frame.
const HEADER_BYTES: usize = 8;
const ENTRY_BYTES: usize = 12;
/// Number of entries, flags and magic number, at the end of the seek table.
const TABLE_END_BYTES: usize = 9;
/// Lengths of metadata, item index and line index, and the checksum, at the end of the metadata frame.
const METADATA_END_BYTES: usize = 20;
const SEAL_BYTES: usize = 8;

/// An entry of the seek table. Its checksum reveals frames that were swapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekEntry {
    /// Size of the frame in the file.
    pub stored_bytes: u32,
    /// Bytes of the payload in the frame.
    pub plain_bytes: u32,
    /// Lower half of the XXH64 of these bytes.
    pub checksum: u32,
}

/// Result of [`parse`].
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The footer is longer than the bytes that were given: this long.
    Needs(u64),
    /// The footer, with ranges of the bytes that were given.
    Footer {
        /// The metadata as JSON.
        metadata: Range<usize>,
        /// The index of the items; empty if there is none.
        items: Range<usize>,
        /// The index of the lines; empty if there is none.
        lines: Range<usize>,
        /// The frames of the payload. Together they end where the footer begins.
        frames: Vec<SeekEntry>,
    },
}

/// Builds the footer of a file. An index that is missing is empty.
///
/// # Errors
/// `InvalidArgument` if a part takes 4 GB.
pub fn build(metadata: &[u8], items: &[u8], lines: &[u8], frames: &[SeekEntry]) -> Result<Vec<u8>> {
    let parts = [metadata, items, lines];
    let content_bytes = parts.iter().map(|part| part.len()).sum::<usize>() + METADATA_END_BYTES;
    let own = SeekEntry {
        stored_bytes: to_u32(HEADER_BYTES + content_bytes)?,
        plain_bytes: 0,
        checksum: lower_half(checksum(b"")),
    };
    let table_bytes = (frames.len() + 1) * ENTRY_BYTES + TABLE_END_BYTES;

    let mut out = Vec::with_capacity(2 * HEADER_BYTES + content_bytes + table_bytes);
    push(&mut out, &[METADATA_MAGIC, to_u32(content_bytes)?]);
    for part in parts {
        out.extend(part);
    }
    push(&mut out, &[to_u32(metadata.len())?, to_u32(items.len())?, to_u32(lines.len())?]);
    let seal_start = out.len();
    out.extend([0; SEAL_BYTES]);
    push(&mut out, &[SEEK_TABLE_MAGIC, to_u32(table_bytes)?]);
    for entry in frames.iter().chain([&own]) {
        push(&mut out, &[entry.stored_bytes, entry.plain_bytes, entry.checksum]);
    }
    push(&mut out, &[to_u32(frames.len() + 1)?]);
    out.push(HAS_CHECKSUMS);
    push(&mut out, &[SEEKABLE_MAGIC]);
    // The checksum is computed with zeros in its own place.
    let seal = checksum(&out[HEADER_BYTES..]);
    out[seal_start..seal_start + SEAL_BYTES].copy_from_slice(&seal.to_le_bytes());
    Ok(out)
}

/// Parses the footer of a file of `file_bytes`, which ends with `tail`.
///
/// # Errors
/// `CorruptIndex` if the footer is damaged.
pub fn parse(tail: &[u8], file_bytes: u64) -> Result<Parsed> {
    parse_footer(tail, file_bytes).ok_or_else(|| Error::index("damaged footer"))
}

fn parse_footer(tail: &[u8], file_bytes: u64) -> Option<Parsed> {
    let table_end = tail.len().checked_sub(TABLE_END_BYTES)?;
    let count = usize::try_from(read_u32(tail, table_end)?).ok()?;
    if tail[table_end + 4] != HAS_CHECKSUMS || read_u32(tail, table_end + 5)? != SEEKABLE_MAGIC || count == 0
    {
        return None;
    }
    // The last entry is that of the metadata frame.
    let metadata_bytes = read_entry(tail, table_end.checked_sub(ENTRY_BYTES)?)?.stored_bytes;
    let table_bytes = HEADER_BYTES + count.checked_mul(ENTRY_BYTES)? + TABLE_END_BYTES;
    let footer_bytes = u64::from(metadata_bytes) + u64::try_from(table_bytes).ok()?;
    let frames_bytes = file_bytes.checked_sub(footer_bytes)?;
    let Some(start) = tail.len().checked_sub(usize::try_from(footer_bytes).ok()?) else {
        return Some(Parsed::Needs(footer_bytes));
    };

    let table_start = tail.len() - table_bytes;
    let lengths_start = table_start.checked_sub(METADATA_END_BYTES)?;
    let content_start = start + HEADER_BYTES;
    let content_bytes = table_start.checked_sub(content_start)?;
    let headers = [
        METADATA_MAGIC,
        to_u32(content_bytes).ok()?,
        SEEK_TABLE_MAGIC,
        to_u32(table_bytes - HEADER_BYTES).ok()?,
    ];
    let starts = [start, start + 4, table_start, table_start + 4];
    if starts.into_iter().zip(headers).any(|(start, number)| read_u32(tail, start) != Some(number)) {
        return None;
    }
    let seal_start = table_start - SEAL_BYTES;
    let mut sealed = tail[content_start..].to_vec();
    sealed[seal_start - content_start..table_start - content_start].fill(0);
    if tail[seal_start..table_start] != checksum(&sealed).to_le_bytes() {
        return None;
    }

    let mut ends = [content_start; 4];
    for part in 0..3usize {
        let length = read_u32(tail, lengths_start + 4 * part)?;
        ends[part + 1] = ends[part].checked_add(usize::try_from(length).ok()?)?;
    }
    let entries_start = table_start + HEADER_BYTES;
    let frames: Vec<_> =
        (0..count - 1).map(|i| read_entry(tail, entries_start + i * ENTRY_BYTES)).collect::<Option<_>>()?;
    let is_complete = frames.iter().map(|entry| u64::from(entry.stored_bytes)).sum::<u64>() == frames_bytes;
    (is_complete && ends[3] == lengths_start).then(|| Parsed::Footer {
        metadata: ends[0]..ends[1],
        items: ends[1]..ends[2],
        lines: ends[2]..ends[3],
        frames,
    })
}

fn push(out: &mut Vec<u8>, numbers: &[u32]) {
    for number in numbers {
        out.extend(number.to_le_bytes());
    }
}

fn read_u32(bytes: &[u8], start: usize) -> Option<u32> {
    bytes.get(start..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

fn read_entry(bytes: &[u8], start: usize) -> Option<SeekEntry> {
    let number = |i: usize| read_u32(bytes, start + 4 * i);
    Some(SeekEntry { stored_bytes: number(0)?, plain_bytes: number(1)?, checksum: number(2)? })
}

fn to_u32(size: usize) -> Result<u32> {
    u32::try_from(size).map_err(|_| Error::argument("a footer is at most 4 GB"))
}

fn lower_half(checksum: u64) -> u32 {
    u32::try_from(checksum & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries() -> impl Strategy<Value = Vec<SeekEntry>> {
        let entry =
            (0..1000u32, any::<u32>(), any::<u32>()).prop_map(|(stored_bytes, plain_bytes, checksum)| {
                SeekEntry { stored_bytes, plain_bytes, checksum }
            });
        prop::collection::vec(entry, 0..5)
    }

    fn part() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..20)
    }

    fn frames_bytes(frames: &[SeekEntry]) -> usize {
        frames.iter().map(|entry| entry.stored_bytes as usize).sum()
    }

    fn is_parsed(tail: &[u8], file_bytes: u64) -> bool {
        matches!(parse(tail, file_bytes), Ok(Parsed::Footer { .. }))
    }

    proptest! {
        #[test]
        fn parses_what_was_built_whatever_is_before_it(
            metadata in part(), items in part(), lines in part(), frames in entries(), before in 0..30usize,
        ) {
            let footer = build(&metadata, &items, &lines, &frames).unwrap();
            let file_bytes = (frames_bytes(&frames) + footer.len()) as u64;
            let tail = [vec![7; before.min(frames_bytes(&frames))], footer].concat();
            let Ok(Parsed::Footer { metadata: a, items: b, lines: c, frames: read }) = parse(&tail, file_bytes) else {
                panic!("not parsed");
            };
            prop_assert_eq!((&tail[a], &tail[b], &tail[c], read), (&*metadata, &*items, &*lines, frames));
        }

        #[test]
        fn a_tail_that_is_too_short_says_how_long_the_footer_is(
            metadata in part(), items in part(), frames in entries(),
        ) {
            let footer = build(&metadata, &items, b"", &frames).unwrap();
            let file_bytes = (frames_bytes(&frames) + footer.len()) as u64;
            for start in 1..=footer.len() {
                match parse(&footer[start..], file_bytes) {
                    Ok(Parsed::Needs(bytes)) => prop_assert_eq!(bytes, footer.len() as u64),
                    Ok(other) => panic!("{other:?}"),
                    // The end of the table says how long it is.
                    Err(_) => prop_assert!(footer.len() - start < ENTRY_BYTES + TABLE_END_BYTES),
                }
            }
        }

        #[test]
        fn every_changed_byte_is_noticed(
            metadata in part(), items in part(), frames in entries(), mask in 1..=255u8,
        ) {
            let footer = build(&metadata, &items, b"", &frames).unwrap();
            let file_bytes = (frames_bytes(&frames) + footer.len()) as u64;
            for changed in 0..footer.len() {
                let mut damaged = footer.clone();
                damaged[changed] ^= mask;
                prop_assert!(!is_parsed(&damaged, file_bytes), "byte {}", changed);
            }
            for other_size in [file_bytes - 1, file_bytes + 1, 0, u64::MAX] {
                prop_assert!(parse(&footer, other_size).is_err());
            }
        }

        #[test]
        fn headers_are_checked_besides_the_seal(metadata in part(), frames in entries(), mask in 1..=255u8) {
            let footer = build(&metadata, b"", b"", &frames).unwrap();
            let file_bytes = (frames_bytes(&frames) + footer.len()) as u64;
            let table_start = HEADER_BYTES + metadata.len() + METADATA_END_BYTES;
            for changed in (0..HEADER_BYTES).chain(table_start..table_start + HEADER_BYTES) {
                let mut damaged = footer.clone();
                damaged[changed] ^= mask;
                damaged[table_start - SEAL_BYTES..table_start].fill(0);
                let seal = checksum(&damaged[HEADER_BYTES..]);
                damaged[table_start - SEAL_BYTES..table_start].copy_from_slice(&seal.to_le_bytes());
                prop_assert!(!is_parsed(&damaged, file_bytes), "byte {}", changed);
            }
        }

        #[test]
        fn any_bytes_are_refused_without_a_panic(tail in part(), file_bytes in any::<u64>(), count in any::<u32>()) {
            let end = [&count.to_le_bytes()[..], &[HAS_CHECKSUMS], &SEEKABLE_MAGIC.to_le_bytes()].concat();
            for bytes in [tail.clone(), [tail, end].concat()] {
                prop_assert!(!is_parsed(&bytes, file_bytes));
            }
        }
    }
}
