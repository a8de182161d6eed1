//! Indexing: compared with itself in pieces, and with the lengths that serde_json finds.

use forebay_core::index::{ItemIndex, ItemIndexer, index_items, index_lines};
use serde_json::Value;

use crate::{Input, oracle};

pub fn compare(Input { knobs, data }: Input<'_>) {
    let step = usize::from(knobs[0]) + 1;
    let trusted = index_items(data, None, false);
    let validated = index_items(data, None, true);
    assert_eq!(in_pieces(data, false, step), trusted, "trusted, in pieces of {step}");
    assert_eq!(in_pieces(data, true, step), validated, "validated, in pieces of {step}");
    if let Ok(index) = validated {
        assert_eq!(trusted.as_ref(), Ok(&index), "trusted and validated differ on a valid payload");
        check_round_trip(&index);
        check_items(data, &index);
    }
    check_lines(data);
    if let Ok(index) = ItemIndex::from_bytes(data) {
        check_round_trip(&index);
    }
}

fn in_pieces(data: &[u8], validate: bool, step: usize) -> forebay_core::Result<ItemIndex> {
    let mut indexer = ItemIndexer::new(None, validate)?;
    for piece in data.chunks(step) {
        indexer.feed(piece)?;
    }
    indexer.finish()
}

fn check_round_trip(index: &ItemIndex) {
    assert_eq!(ItemIndex::from_bytes(&index.to_bytes()).as_ref(), Ok(index));
}

fn check_items(data: &[u8], index: &ItemIndex) {
    if !oracle::is_json(data) {
        let rows = oracle::rows(data).expect("valid and not one value");
        assert_eq!(index.len(), rows.len() as u64, "rows of NDJSON");
        return;
    }
    let Some(value) = oracle::parse(data) else { return };
    let array = index.path().map(|path| value.pointer(path).expect("the path leads somewhere"));
    match array {
        Some(Value::Array(items)) => {
            assert_eq!(index.len(), items.len() as u64, "items at {:?}", index.path());
            // The span is that of the array, so it has the same value as the pointer.
            let span = index.start() as usize..index.end() as usize;
            assert_eq!(oracle::parse(&data[span]).as_ref(), array);
        }
        Some(other) => panic!("items in {other}"),
        None => assert!(index.is_empty() && !value.is_array(), "no items in {value}"),
    }
}

fn check_lines(data: &[u8]) {
    let lines = data.split_inclusive(|&byte| byte == b'\n').count();
    assert_eq!(index_lines(data).len(), lines as u64);
}
