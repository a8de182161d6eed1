//! Footers of stored files: compared with a naive writer and a naive reader of `docs/format.md`. Both readers also get
//! footers with one changed byte and a new seal, so that checks besides that of the seal are compared.

use forebay_core::checksum;
use forebay_core::footer::{Parsed, SeekEntry, build, parse};

use crate::Input;

const METADATA_MAGIC: u32 = 0x184D_2A57;
const TABLE_MAGIC: u32 = 0x184D_2A5E;
/// The end of the seek table: the flag that entries have checksums, and a magic number.
const TABLE_END: [u8; 5] = [0x80, 0xb1, 0xea, 0x92, 0x8f];
const ENTRY_BYTES: usize = 12;

/// Maximum bytes of an input that are used: each byte of the footer is changed in turn.
const MAX_DATA_BYTES: usize = 128;

pub fn compare(Input { knobs, data }: Input<'_>) {
    let data = &data[..data.len().min(MAX_DATA_BYTES)];
    check(data, data.len() as u64);

    let (parts, entries) = data.split_at(data.len().min(usize::from(knobs[0] % 64)));
    let (metadata, indexes) = parts.split_at(parts.len().min(usize::from(knobs[1] % 32)));
    let (items, lines) = indexes.split_at(indexes.len().min(usize::from(knobs[2] % 16)));
    let frames: Vec<SeekEntry> = entries.chunks_exact(ENTRY_BYTES).map(read_entry).collect();
    let footer = build(metadata, items, lines, &frames).expect("a small footer");
    assert_eq!(footer, naive_build([metadata, items, lines], &frames));

    let frame_bytes: u64 = frames.iter().map(|frame| u64::from(frame.stored_bytes)).sum();
    let file_bytes = frame_bytes + footer.len() as u64;
    for start in 0..=footer.len() {
        check(&footer[start..], file_bytes);
    }
    check(&[entries, &footer].concat(), file_bytes);
    for wrong_bytes in [0, file_bytes - 1, file_bytes + 1, u64::MAX] {
        check(&footer, wrong_bytes);
    }
    let seal_start = 8 + parts.len() + 12;
    for position in 0..footer.len() {
        let mut damaged = footer.clone();
        damaged[position] ^= knobs[3].max(1);
        check(&damaged, file_bytes);
        let seal = seal(&damaged, seal_start);
        damaged[seal_start..seal_start + 8].copy_from_slice(&seal.to_le_bytes());
        check(&damaged, file_bytes);
    }
}

fn check(tail: &[u8], file_bytes: u64) {
    let parsed = parse(tail, file_bytes);
    assert_eq!(parsed.ok(), naive_parse(tail, file_bytes), "{tail:?} of {file_bytes} bytes");
}

fn naive_build(parts: [&[u8]; 3], frames: &[SeekEntry]) -> Vec<u8> {
    let content_bytes = parts.concat().len() as u32 + 20;
    let metadata_entry = SeekEntry { stored_bytes: 8 + content_bytes, plain_bytes: 0, checksum: 0x51D8_E999 };
    let entries: Vec<u8> = [frames, &[metadata_entry]]
        .concat()
        .iter()
        .flat_map(|entry| [entry.stored_bytes, entry.plain_bytes, entry.checksum])
        .flat_map(u32::to_le_bytes)
        .collect();
    let count = frames.len() as u32 + 1;
    let mut footer = [METADATA_MAGIC.to_le_bytes(), content_bytes.to_le_bytes()].concat();
    footer.extend(parts.concat());
    footer.extend(parts.iter().flat_map(|part| (part.len() as u32).to_le_bytes()));
    let seal_start = footer.len();
    footer.extend([0; 8]);
    footer.extend([TABLE_MAGIC, entries.len() as u32 + 9].iter().flat_map(|number| number.to_le_bytes()));
    footer.extend(entries);
    footer.extend(count.to_le_bytes());
    footer.extend(TABLE_END);
    let seal = seal(&footer, seal_start);
    footer[seal_start..seal_start + 8].copy_from_slice(&seal.to_le_bytes());
    footer
}

fn naive_parse(tail: &[u8], file_bytes: u64) -> Option<Parsed> {
    let (before, end) = tail.split_last_chunk::<9>()?;
    let (metadata_entry, count) = (before.last_chunk::<ENTRY_BYTES>()?, read_u32(end, 0)?);
    if end[4..] != TABLE_END || count == 0 {
        return None;
    }
    let metadata_bytes = read_u32(metadata_entry, 0)?;
    let table_bytes = 8 + ENTRY_BYTES as u64 * u64::from(count) + 9;
    let footer_bytes = u64::from(metadata_bytes) + table_bytes;
    if footer_bytes > file_bytes {
        return None;
    }
    let start = match (tail.len() as u64).checked_sub(footer_bytes) {
        Some(start) => start as usize,
        None => return Some(Parsed::Needs(footer_bytes)),
    };
    let (frame, table) = tail[start..].split_at(metadata_bytes as usize);
    let sizes_start = frame.len().checked_sub(20)?;
    let sizes: Vec<u64> =
        (0..3).map(|part| read_u32(frame, sizes_start + 4 * part).map(u64::from)).collect::<Option<_>>()?;
    let frames: Vec<SeekEntry> =
        table[8..table.len() - 9 - ENTRY_BYTES].chunks_exact(ENTRY_BYTES).map(read_entry).collect();
    let is_valid = frame.len() >= 28
        && read_u32(frame, 0) == Some(METADATA_MAGIC)
        && read_u32(frame, 4) == Some(metadata_bytes - 8)
        && frame[frame.len() - 8..] == seal(&tail[start..], frame.len() - 8).to_le_bytes()
        && read_u32(table, 0) == Some(TABLE_MAGIC)
        && read_u32(table, 4) == u32::try_from(table_bytes - 8).ok()
        && sizes.iter().sum::<u64>() + 28 == frame.len() as u64
        && frames.iter().map(|entry| u64::from(entry.stored_bytes)).sum::<u64>() == file_bytes - footer_bytes;
    let metadata = start + 8..start + 8 + *sizes.first()? as usize;
    let items = metadata.end..metadata.end + *sizes.get(1)? as usize;
    let lines = items.end..items.end + *sizes.get(2)? as usize;
    is_valid.then_some(Parsed::Footer { metadata, items, lines, frames })
}

/// Returns the checksum of a footer: of what follows the header of the metadata frame, with zeros in place of the seal.
fn seal(footer: &[u8], seal_start: usize) -> u64 {
    checksum(&[&footer[8..seal_start], &[0; 8], &footer[seal_start + 8..]].concat())
}

fn read_u32(bytes: &[u8], start: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(start..start + 4)?.try_into().ok()?))
}

fn read_entry(bytes: &[u8]) -> SeekEntry {
    let number = |start| read_u32(bytes, start).expect("a whole entry");
    SeekEntry { stored_bytes: number(0), plain_bytes: number(4), checksum: number(8) }
}
