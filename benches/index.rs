//! Indexing, compared with other Rust crates: each in its fastest documented way, in a portable build.
//!
//! `make bench` writes the corpora first. A group is a row of the report, a function is a library, a
//! parameter is a corpus.

#![allow(missing_docs, clippy::expect_used, clippy::panic)]

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use forebay_core::index::ItemIndexer;
use rsonpath::engine::{Compiler, Engine, RsonpathEngine};
use rsonpath::input::BorrowedBytes;

struct Corpus {
    name: &'static str,
    /// The key the items are under; `None` for a top-level array.
    key: Option<&'static str>,
}

const CORPORA: [Corpus; 5] = [
    Corpus { name: "records", key: None },
    Corpus { name: "big_items", key: None },
    Corpus { name: "tweets", key: None },
    Corpus { name: "wrapped", key: Some("statuses") },
    Corpus { name: "tiny_ints", key: None },
];

impl Corpus {
    fn load(&self) -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/corpus");
        std::fs::read(folder.join(self.name).with_extension("json")).expect("`make bench` writes the corpora")
    }
}

/// Indexes in one thread, like the others.
fn forebay(data: &[u8], key: Option<&str>, validate: bool) -> usize {
    let path = key.map(|key| format!("/{key}"));
    let mut indexer = ItemIndexer::new(path.as_deref(), validate).expect("the path is a pointer");
    indexer.feed(data).expect("the corpus is JSON");
    let index = indexer.finish().expect("the corpus is JSON");
    usize::try_from(index.len()).expect("items fit in memory")
}

/// Reads each item, so that its span is known and not only counted.
fn sonic(data: &[u8], key: Option<&str>, validate: bool) -> usize {
    let items = |array| {
        if validate { sonic_rs::to_array_iter(array) } else { unchecked::items(array) }
            .inspect(|item| _ = black_box(item.as_ref().expect("the corpus is JSON").as_raw_str().len()))
            .count()
    };
    match key {
        None => items(data),
        Some(key) if validate => {
            items(sonic_rs::get(data, [key]).expect("the key exists").as_raw_str().as_bytes())
        }
        Some(key) => items(unchecked::get(data, key).as_raw_str().as_bytes()),
    }
}

/// sonic-rs is fastest where it trusts its input, like forebay with `validate: false`.
#[allow(unsafe_code)]
mod unchecked {
    use sonic_rs::{ArrayJsonIter, LazyValue};

    pub fn items(data: &[u8]) -> ArrayJsonIter<'_> {
        // SAFETY: the corpora are valid JSON.
        unsafe { sonic_rs::to_array_iter_unchecked(data) }
    }

    pub fn get<'a>(data: &'a [u8], key: &str) -> LazyValue<'a> {
        // SAFETY: the corpora are valid JSON.
        unsafe { sonic_rs::get_unchecked(data, [key]) }.expect("the key exists")
    }
}

fn rsonpath_engine(key: Option<&str>) -> RsonpathEngine {
    let query = key.map_or("$[*]".to_owned(), |key| format!("$.{key}[*]"));
    let query = rsonpath_syntax::parse(&query).expect("the query is right");
    RsonpathEngine::compile_query(&query).expect("the query is small")
}

/// Counting is the simplest query, and the fastest.
fn rsonpath(engine: &RsonpathEngine, data: &[u8]) -> usize {
    let count = engine.count(&BorrowedBytes::new(data)).expect("the corpus is JSON");
    usize::try_from(count).expect("items fit in memory")
}

fn trusted(c: &mut Criterion) {
    let mut group = c.benchmark_group("index in Rust, trusted");
    group.sampling_mode(SamplingMode::Flat);
    for corpus in &CORPORA {
        let (name, key, data) = (corpus.name, corpus.key, &corpus.load()[..]);
        let engine = &rsonpath_engine(key);
        let count = forebay(data, key, false);
        assert_eq!(sonic(data, key, false), count, "sonic-rs on {name}");
        assert_eq!(rsonpath(engine, data), count, "rsonpath on {name}");
        let label = format!("{name} 100 MB");
        group.throughput(Throughput::Bytes(data.len() as u64));
        group.bench_function(BenchmarkId::new("forebay", &label), |b| b.iter(|| forebay(data, key, false)));
        group.bench_function(BenchmarkId::new("sonic-rs", &label), |b| b.iter(|| sonic(data, key, false)));
        group.bench_function(BenchmarkId::new("rsonpath", &label), |b| b.iter(|| rsonpath(engine, data)));
    }
}

fn validated(c: &mut Criterion) {
    let mut group = c.benchmark_group("index in Rust, validated");
    group.sampling_mode(SamplingMode::Flat);
    for corpus in &CORPORA {
        let (name, key, data) = (corpus.name, corpus.key, &corpus.load()[..]);
        assert_eq!(sonic(data, key, true), forebay(data, key, true), "sonic-rs on {name}");
        let label = format!("{name} 100 MB");
        group.throughput(Throughput::Bytes(data.len() as u64));
        group.bench_function(BenchmarkId::new("forebay", &label), |b| b.iter(|| forebay(data, key, true)));
        group.bench_function(BenchmarkId::new("sonic-rs", &label), |b| b.iter(|| sonic(data, key, true)));
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = trusted, validated
}
criterion_main!(benches);
