//! The memory that an index in two threads allocates: that of all threads, so this is the only test of its process.

#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_core::index::index_items;

/// Allocator that counts the bytes that the process holds, and their peak.
struct Counting;

static CURRENT: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size();
        PEAK.fetch_max(CURRENT.fetch_add(size, Ordering::Relaxed) + size, Ordering::Relaxed);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CURRENT.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn an_index_in_two_threads_is_a_thousandth_of_its_payload() {
    let record = br#"{"id":1,"name":"na\u00efve","tags":["a","b"],"text":"lorem ipsum dolor sit amet"}"#;
    let records = vec![&record[..]; (16 << 20) / record.len()].join(&b",\n"[..]);
    let data = [b"{\"items\":[", &records[..], b"]}"].concat();
    let before = CURRENT.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let index = index_items(&data, None, true).unwrap();
    let peak_bytes = PEAK.load(Ordering::Relaxed) - before;
    assert!(index.len() > 100_000 && peak_bytes < data.len() / 1000, "{peak_bytes} bytes");
}
