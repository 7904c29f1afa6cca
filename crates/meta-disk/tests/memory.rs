//! Reads with a small cache.

use crate::fixture::{ingest, open, options};
use meta::{Reader as _, RunRecord};
use meta_disk::{DiskEngine, EngineOptions};

on_each_layer! {
    a_missing_key_does_not_read_the_whole_filter
}

const KEYS: u64 = 1_000_000;
const ASKED: u64 = 400;

/// Returns the number of bytes that this thread has read from files.
fn bytes_read() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let read = counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    read.parse().unwrap()
}

/// The filter of a table with a million keys was larger than a shard of a small cache. So it was read and checksummed for each key,
/// and a listing of 400,000 entries took 8 times as much CPU with a limit of 128 MiB as with 1 GiB.
fn a_missing_key_does_not_read_the_whole_filter() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path());
    ingest(&engine, KEYS as usize, &[], &RunRecord::default()).unwrap();
    drop(engine);
    let engine = DiskEngine::open(folder.path(), EngineOptions { cache_bytes: 0, ..options() }).unwrap();
    let before = bytes_read();
    for n in 0..ASKED {
        let key = format!("r{:06}x", n * (KEYS / ASKED));
        assert_eq!(engine.get(key.as_bytes()).unwrap(), None);
    }
    let per_key = (bytes_read() - before) / ASKED;
    assert!(per_key < 32 << 10, "{per_key} bytes");
}
