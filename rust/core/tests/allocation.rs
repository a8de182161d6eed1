//! What a verb allocates is as large as its answer, not as its payload.

#![allow(missing_docs, unsafe_code, clippy::expect_used, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use forebay_core::index::{index_items, index_lines};
use forebay_core::pointer::{Pointer, locate};
use forebay_core::search::{Options, Pattern, search};
use forebay_core::truncate::{Limits, truncate};
use forebay_core::{Escaping, Range, preview, read_lines, read_text, truncate_lines};

/// Counts the bytes that the current thread holds, and the most it ever held.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // A thread that is ending has no counters any more; nobody reads them then.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most that `verb` held at once, its answer included.
fn peak<T>(verb: impl FnOnce() -> T) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    let answer = verb();
    let peak = PEAK.get() - before;
    drop(answer);
    peak.try_into().unwrap()
}

const SIZE: usize = 16 << 20;

/// Records under a key, each on a line of its own.
fn payload() -> Vec<u8> {
    let record = br#"{"id":1,"name":"na\u00efve","tags":["a","b"],"text":"lorem ipsum dolor sit amet"}"#;
    let records = vec![&record[..]; SIZE / (record.len() + 2)].join(&b",\n"[..]);
    [b"{\"items\":[", &records[..], b"]}"].concat()
}

#[test]
fn an_allocation_is_counted() {
    assert!(peak(|| vec![0_u8; 1 << 20]) >= 1 << 20);
    assert!(peak(|| vec![vec![0_u8; 1 << 20], vec![0_u8; 1 << 20]]) >= 2 << 20);
}

#[test]
fn an_index_is_a_thousandth_of_its_payload() {
    let data = payload();
    for validate in [false, true] {
        let most = peak(|| index_items(&data, None, validate).unwrap());
        assert!(most < SIZE / 1000, "{most} bytes, validate: {validate}");
        let most = peak(|| index_items(&data, Some("/items"), validate).unwrap());
        assert!(most < SIZE / 1000, "{most} bytes with a path, validate: {validate}");
    }
    let most = peak(|| index_lines(&data));
    assert!(most < SIZE / 1000, "{most} bytes for lines");
}

#[test]
fn an_overview_is_as_large_as_its_budget() {
    let data = payload();
    let most = peak(|| truncate(&data, &Limits::default()).unwrap());
    assert!(most < 40 * Limits::default().max_bytes, "{most} bytes");
    let most = peak(|| truncate_lines(&data, 10, 10, 10_240).unwrap());
    assert!(most < 4 * 10_240, "{most} bytes for lines");
}

#[test]
fn spans_cost_nothing() {
    let data = payload();
    let items = Pointer::parse("/items").unwrap();
    let last = Range::Suffix(100);
    assert!(peak(|| locate(&data, &items).unwrap()) < 1024);
    assert!(peak(|| preview(&data, 2048, None, Escaping::Once).unwrap()) < 4096);
    assert!(peak(|| read_text(&data, last, 65_536, Escaping::Never).unwrap()) < 1024);
    assert!(peak(|| read_lines(&data, None, last, 65_536, Escaping::Never).unwrap()) < 1024);
}

#[test]
fn searching_costs_what_its_matches_do() {
    let data = payload();
    let options = Options { start: 0, limit: 10, context: 80 };
    for pattern in [Pattern::literal("nowhere", false).unwrap(), Pattern::literal("lorem", false).unwrap()] {
        let most = peak(|| search(&data, &pattern, options, None).unwrap());
        assert!(most < 16 << 10, "{most} bytes");
    }
    // The lazy automaton has a cache of its own, which is bounded.
    let pattern = Pattern::regex(r"\bnowhere\b.{0,9}\d", false).unwrap();
    let most = peak(|| search(&data, &pattern, options, None).unwrap());
    assert!(most < 12 << 20, "{most} bytes");
}
