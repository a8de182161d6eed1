//! The memory that a function allocates depends on its result, not on the payload.

#![allow(missing_docs, unsafe_code, clippy::expect_used, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use forebay_core::index::{Kind, index_items, index_lines};
use forebay_core::pointer::{Pointer, locate};
use forebay_core::search::{Options, Pattern, search};
use forebay_core::truncate::{Limits, truncate};
use forebay_core::{Escaping, Range, preview, read_lines, read_text, truncate_lines};

/// Allocator that counts the bytes that the current thread holds, and their peak.
struct Counting;

thread_local! {
    static CURRENT: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // A thread that is exiting no longer has counters, and nothing reads them.
    let _ = CURRENT.try_with(|current| {
        current.set(current.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(current.get())));
    });
}

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the peak of the bytes that `operation` held, its result included.
fn peak<T>(operation: impl FnOnce() -> T) -> usize {
    let before = CURRENT.get();
    PEAK.set(before);
    let result = operation();
    let peak = PEAK.get() - before;
    drop(result);
    peak.try_into().unwrap()
}

const SIZE: usize = 16 << 20;

/// Records under a key, one per line.
fn payload() -> Vec<u8> {
    let record = br#"{"id":1,"name":"na\u00efve","tags":["a","b"],"text":"lorem ipsum dolor sit amet"}"#;
    let records = vec![&record[..]; SIZE / (record.len() + 2)].join(&b",\n"[..]);
    [b"{\"items\":[", &records[..], b"]}"].concat()
}

#[test]
fn allocations_are_counted() {
    assert!(peak(|| vec![0_u8; 1 << 20]) >= 1 << 20);
    assert!(peak(|| vec![vec![0_u8; 1 << 20], vec![0_u8; 1 << 20]]) >= 2 << 20);
}

#[test]
fn an_index_is_a_thousandth_of_its_payload() {
    let data = payload();
    for validate in [false, true] {
        let peak_bytes = peak(|| index_items(&data, None, validate).unwrap());
        assert!(peak_bytes < SIZE / 1000, "{peak_bytes} bytes, validate: {validate}");
        let peak_bytes = peak(|| index_items(&data, Some("/items"), validate).unwrap());
        assert!(peak_bytes < SIZE / 1000, "{peak_bytes} bytes with a path, validate: {validate}");
    }
    let map =
        String::from_utf8(data.clone()).unwrap().replace("[{", "{\"k\":{").replace(",\n{", ",\n\"k\":{");
    let map = map.replace("]}", "}}").into_bytes();
    for path in [None, Some("/items")] {
        let index = index_items(&map, path, true).unwrap();
        assert_eq!(
            (index.kind(), index.len()),
            (Some(Kind::Map), index_items(&data, None, true).unwrap().len())
        );
        let peak_bytes = peak(|| index_items(&map, path, true).unwrap());
        // The last entry is kept, to be read again if it turns out to be large.
        assert!(peak_bytes < SIZE / 1000 + (16 << 10), "{peak_bytes} bytes for a map at {path:?}");
    }
    let peak_bytes = peak(|| index_lines(&data));
    assert!(peak_bytes < SIZE / 1000, "{peak_bytes} bytes for lines");
}

#[test]
fn an_overview_is_as_large_as_its_budget() {
    let data = payload();
    let peak_bytes = peak(|| truncate(&data, &Limits::default()).unwrap());
    assert!(peak_bytes < 40 * Limits::default().max_bytes, "{peak_bytes} bytes");
    let peak_bytes = peak(|| truncate_lines(&data, 10, 10, 10_240).unwrap());
    assert!(peak_bytes < 4 * 10_240, "{peak_bytes} bytes for lines");
}

#[test]
fn spans_need_almost_no_memory() {
    let data = payload();
    let items = Pointer::parse("/items").unwrap();
    let last = Range::Suffix(100);
    assert!(peak(|| locate(&data, &items).unwrap()) < 1024);
    assert!(peak(|| preview(&data, 2048, None, Escaping::Once).unwrap()) < 4096);
    assert!(peak(|| read_text(&data, last, 65_536, Escaping::Never).unwrap()) < 1024);
    assert!(peak(|| read_lines(&data, None, last, 65_536, Escaping::Never).unwrap()) < 1024);
}

#[test]
fn a_search_needs_memory_for_its_matches_only() {
    let data = payload();
    let options = Options { offset: 0, limit: 10, context: 80, paths: false };
    for pattern in [Pattern::literal("nowhere", false).unwrap(), Pattern::literal("lorem", false).unwrap()] {
        let peak_bytes = peak(|| search(&data, &pattern, options, None).unwrap());
        assert!(peak_bytes < 16 << 10, "{peak_bytes} bytes");
    }
    // The lazy DFA has a cache of its own, which is bounded.
    let pattern = Pattern::regex(r"\bnowhere\b.{0,9}\d", false).unwrap();
    let peak_bytes = peak(|| search(&data, &pattern, options, None).unwrap());
    assert!(peak_bytes < 12 << 20, "{peak_bytes} bytes");
}
