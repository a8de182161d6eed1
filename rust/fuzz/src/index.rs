//! Indexing: compared with itself in pieces and with every instruction set, with the lengths that serde_json finds, and
//! with a choice of the main collection that reads every value.

use forebay_core::Isa;
use forebay_core::index::{ItemIndex, ItemIndexer, index_items, index_items_in_two, index_lines};
use serde_json::Value;

use crate::{Input, collections, oracle};

pub fn compare(Input { knobs, data }: Input<'_>) {
    let step = usize::from(knobs[0]) + 1;
    let trusted = index_items(data, None, false);
    let validated = index_items(data, None, true);
    for isa in Isa::available() {
        assert_eq!(in_pieces(isa, data, false, step), trusted, "trusted, {isa:?}, in pieces of {step}");
        assert_eq!(in_pieces(isa, data, true, step), validated, "validated, {isa:?}, in pieces of {step}");
    }
    check_threads(knobs, data);
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

fn in_pieces(isa: Isa, data: &[u8], validate: bool, step: usize) -> forebay_core::Result<ItemIndex> {
    let mut indexer = ItemIndexer::with_isa(None, validate, isa)?;
    for piece in data.chunks(step) {
        indexer.feed(piece)?;
    }
    indexer.finish()
}

/// Compares two threads with one, on a document that has `data` again and again: as items, rows, or part of them.
fn check_threads(knobs: [u8; 4], data: &[u8]) {
    let (open, separator, close) = match knobs[1] % 4 {
        0 => ("[", ",", "]"),
        1 => ("{\"a\":[1],\"b\":[", ",\n", "],\"c\":{}}"),
        2 => ("", "\n", "\n"),
        _ => ("", "", ""),
    };
    let copies = vec![data; usize::from(knobs[2] % 16) + 1].join(separator.as_bytes());
    let document = [open.as_bytes(), &copies, close.as_bytes()].concat();
    let cut = (usize::from(knobs[3]) + 1) * document.len() / 256;
    for isa in Isa::available() {
        let expected = in_pieces(isa, &document, true, document.len().max(1));
        let found = index_items_in_two(&document, None, isa, cut);
        assert_eq!(found, expected, "{isa:?}, two threads from {cut} of {}", document.len());
    }
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
    let main = collections::find_main(data).map(|span| (span.start as u64, span.end as u64));
    assert_eq!(index.kind().map(|_| (index.start(), index.end())), main, "the main collection");
    let items = index.path().map(|path| value.pointer(path).expect("the path leads somewhere"));
    let len = match items {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(members)) => members.len(),
        Some(other) => panic!("items in {other}"),
        None => return assert!(index.is_empty() && !value.is_array(), "no items in {value}"),
    };
    assert_eq!(index.len(), len as u64, "items at {:?}", index.path());
    // The span is that of the collection, so it has the same value as the pointer.
    let span = index.start() as usize..index.end() as usize;
    assert_eq!(oracle::parse(&data[span]).as_ref(), items);
    check_path(data, index, items);
}

/// Checks that the collection at a path has the items of the main one.
fn check_path(data: &[u8], index: &ItemIndex, items: Option<&Value>) {
    let again = index_items(data, index.path(), false).expect("the path leads to items");
    assert_eq!(&again, index, "items of {items:?}");
}

fn check_lines(data: &[u8]) {
    let lines = data.split_inclusive(|&byte| byte == b'\n').count();
    assert_eq!(index_lines(data).len(), lines as u64);
}
