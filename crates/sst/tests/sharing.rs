//! Tables that share a cache, and readers that share a table.

use crate::fixture::{Model, SMALL, build, expected, numbered_model, scan_from};
use bytes::Bytes;
use sst::{Cache, Options, Source, Table};
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

/// A source that counts reads and can make them fail.
struct CountingSource {
    bytes: Bytes,
    reads: AtomicU64,
    fails: AtomicU64,
}

impl CountingSource {
    fn new(bytes: Bytes) -> Self {
        Self { bytes, reads: AtomicU64::new(0), fails: AtomicU64::new(0) }
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }
}

impl Source for CountingSource {
    fn len_bytes(&self) -> u64 {
        self.bytes.len_bytes()
    }

    fn read_at(&self, at: u64, len: usize) -> io::Result<Bytes> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        match self.fails.load(Ordering::SeqCst) {
            0 => self.bytes.read_at(at, len),
            1 => Err(io::Error::other("simulated read error")),
            _ => self.bytes.read_at(at, len - 1),
        }
    }
}

fn open_counted(
    model: &Model,
    options: Options,
    cache_bytes: u64,
) -> (Arc<Table<CountingSource>>, Arc<Cache>) {
    let cache = Arc::new(Cache::new(cache_bytes));
    let table = Table::open(CountingSource::new(build(model, options)), 1, Arc::clone(&cache)).unwrap();
    (Arc::new(table), cache)
}

#[test]
fn open_reads_the_end_and_get_reads_three_parts() {
    let model = numbered_model(6000);
    let (table, _) = open_counted(&model, SMALL, 1 << 20);
    assert_eq!(table.source().reads(), 1);
    let (key, value) = model.iter().nth(4321).unwrap();
    for _ in 0..3 {
        assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]));
        // Three further reads: filter, index and block.
        assert_eq!(table.source().reads(), 4);
    }
    assert!(!table.may_hold(b"bucket/key-0004321x").unwrap());
    assert_eq!(table.source().reads(), 4);
}

#[test]
fn get_kept_never_reads() {
    let model = numbered_model(6000);
    let (table, _) = open_counted(&model, SMALL, 1 << 20);
    let (key, value) = model.iter().nth(4321).unwrap();
    assert_eq!(table.get_kept(key).unwrap(), None, "nothing was read yet");
    assert_eq!(table.get_kept(b"zzz").unwrap(), Some(None), "beyond the last key");
    table.get(key).unwrap();
    let reads = table.source().reads();
    assert_eq!(table.get_kept(key).unwrap(), Some(Some(Bytes::from(value.clone()))));
    assert_eq!(table.get_kept(b"bucket/key-0004321x").unwrap(), Some(None), "the filter excludes the key");
    assert_eq!(table.get_kept(model.keys().next().unwrap()).unwrap(), None, "another block");
    assert_eq!(table.source().reads(), reads);
}

#[test]
fn resumed_scans_read_little_more_than_one_scan() {
    let model = numbered_model(50_000);
    let (table, _) = open_counted(&model, Options::default(), 64 << 20);
    let (mut found, mut last) = (Vec::new(), Vec::new());
    loop {
        let mut part = table.scan_part(Bound::Excluded(&last));
        let before = found.len();
        while found.len() < before + 1000 && part.advance().unwrap() {
            found.push((part.key().to_vec(), part.value().to_vec()));
        }
        if found.len() == before {
            break;
        }
        last = found.last().unwrap().0.clone();
    }
    assert_eq!(found, expected(&model, Bound::Unbounded));
    let (reads, len) = (table.source().reads(), table.source().len_bytes());
    assert!(reads < 12 + 2 * len / (256 << 10), "{reads} reads of {len} bytes");
}

#[test]
fn a_long_scan_reads_far_ahead_and_leaves_the_cache_alone() {
    let model = numbered_model(50_000);
    let (table, cache) = open_counted(&model, Options::default(), 64 << 20);
    assert_eq!(scan_from(&table, Bound::Unbounded), expected(&model, Bound::Unbounded));
    let len = table.source().len_bytes();
    assert!(
        table.source().reads() < len / (200 << 10) + 10,
        "{} reads of {len} bytes",
        table.source().reads()
    );
    assert!(cache.len_bytes() < 200 << 10, "{} bytes", cache.len_bytes());
}

#[test]
fn a_short_scan_is_served_by_the_cache() {
    let model = numbered_model(50_000);
    let (table, _) = open_counted(&model, Options::default(), 64 << 20);
    let few = || {
        let mut cursor = table.scan(Bound::Included(b"bucket/key-0012345"));
        (0..50).all(|_| cursor.advance().unwrap())
    };
    assert!(few());
    let reads = table.source().reads();
    assert!(few());
    assert_eq!(table.source().reads(), reads);
}

#[test]
fn the_cache_keeps_to_its_bound() {
    let model = numbered_model(50_000);
    for cache_bytes in [0, 10_000, 300_000, 9 << 20] {
        let (table, cache) = open_counted(&model, Options::default(), cache_bytes);
        for (key, value) in model.iter().step_by(61) {
            assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]));
            assert!(cache.len_bytes() <= cache_bytes, "{} of {cache_bytes} bytes", cache.len_bytes());
        }
    }
}

/// Regression: parts of a table that a merge replaced stayed in the cache until others evicted them.
#[test]
fn a_dropped_table_leaves_the_cache() {
    let cache = Arc::new(Cache::new(1 << 20));
    let open =
        |id| Table::open(build(&numbered_model(100), SMALL), id, Arc::clone(&cache)).map(Arc::new).unwrap();
    let (old, new) = (open(1), open(2));
    new.get(b"bucket/key-0000050").unwrap().unwrap();
    let without_old = cache.len_bytes();
    old.get(b"bucket/key-0000050").unwrap().unwrap();
    assert!(cache.len_bytes() > without_old);
    let reader = old.clone();
    drop(old);
    assert!(cache.len_bytes() > without_old, "a reader still has the table");
    drop(reader);
    assert_eq!(cache.len_bytes(), without_old);
    drop(new);
    assert_eq!(cache.len_bytes(), 0);
}

#[test]
fn tables_in_one_cache_are_not_mistaken_for_each_other() {
    let cache = Arc::new(Cache::new(1 << 20));
    let models: Vec<Model> = (0..4)
        .map(|table: u8| numbered_model(500).into_keys().map(|key| (key, vec![table; 20])).collect())
        .collect();
    let open = |(id, model)| Table::open(build(model, SMALL), id, Arc::clone(&cache)).unwrap();
    let tables: Vec<_> = (0..).zip(&models).map(open).collect();
    for key in models[0].keys() {
        for (table, model) in tables.iter().zip(&models) {
            assert_eq!(table.get(key).unwrap().as_deref(), model.get(key).map(|value| &value[..]));
        }
    }
}

#[test]
fn concurrent_readers_agree_and_read_no_block_twice() {
    let model = numbered_model(3000);
    let (table, _) = open_counted(&model, SMALL, 16 << 20);
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (table, model, start) = (&table, &model, &start);
            scope.spawn(move || {
                start.wait();
                for (key, value) in model.iter().skip(thread % 2) {
                    assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]));
                }
                assert_eq!(scan_from(table, Bound::Unbounded), expected(model, Bound::Unbounded));
            });
        }
    });
    let blocks = table.source().len_bytes() / 30;
    assert!(table.source().reads() < blocks, "{} reads", table.source().reads());
}

#[test]
fn a_read_error_is_returned_and_not_cached() {
    let model = numbered_model(100);
    let (table, _) = open_counted(&model, SMALL, 1 << 20);
    let (key, value) = model.iter().nth(50).unwrap();
    for fails in [1, 2] {
        table.source().fails.store(fails, Ordering::SeqCst);
        assert!(matches!(table.get(key), Err(sst::Error::Io(_))));
        assert!(matches!(table.scan(Bound::Unbounded).advance(), Err(sst::Error::Io(_))));
    }
    table.source().fails.store(0, Ordering::SeqCst);
    assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]));
}
