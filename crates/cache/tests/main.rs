//! Tests of the caches, over real directories and a store in memory.

#![expect(clippy::unwrap_used, reason = "tests")]

mod shared_cache;

use cache::{DiskCache, ObjectId, SEGMENT_BYTES};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use store::{ETag, ObjectKey, SystemClock};

const LIMIT_BYTES: u64 = 64 << 20;

fn open(dir: &Path) -> DiskCache {
    DiskCache::open(dir, LIMIT_BYTES, "s3://bucket", Arc::new(SystemClock)).unwrap()
}

fn object(cache: &DiskCache, number: u64) -> ObjectId {
    let key = ObjectKey::try_from(format!("object-{number}").as_bytes()).unwrap();
    cache.object(&key, Some(&ETag::new("etag"))).unwrap()
}

fn bytes(seed: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 7) as u8).collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let shards = fs::read_dir(dir.join("segments-1")).unwrap();
    shards
        .flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect()
}

fn read(cache: &DiskCache, object: ObjectId, range: std::ops::Range<u64>) -> Option<Vec<u8>> {
    let mut into = vec![0; (range.end - range.start) as usize];
    cache.read(object, range, &mut into).then_some(into)
}

#[test]
fn s800_stored_bytes_are_read_by_another_process_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (open(dir.path()), open(dir.path()));
    let data = bytes(1, 3 * SEGMENT_BYTES + 777);
    assert!(first.store(object(&first, 1), 0, &data));
    for cache in [&first, &second, &open(dir.path())] {
        let id = object(cache, 1);
        assert!(cache.contains(id, 0..data.len() as u64));
        assert!(read(cache, id, 0..data.len() as u64).unwrap() == data);
        assert!(
            read(cache, id, SEGMENT_BYTES - 5000..SEGMENT_BYTES + 3).unwrap()[..]
                == data[1_043_576..1_048_579]
        );
        assert_eq!(read(cache, id, 0..data.len() as u64 + 1), None, "no byte behind the end was stored");
        assert_eq!(read(cache, object(cache, 2), 0..10), None);
    }
}

#[test]
fn s800_objects_of_other_sources_and_provisional_etags_are_not_mixed_up() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path());
    let key = ObjectKey::try_from(&b"key"[..]).unwrap();
    assert_eq!(cache.object(&key, Some(&ETag::provisional(1))), None);
    cache.store(cache.object(&key, Some(&ETag::new("a"))).unwrap(), 0, b"bytes");
    let other = DiskCache::open(dir.path(), LIMIT_BYTES, "s3://other", Arc::new(SystemClock)).unwrap();
    assert_eq!(read(&other, other.object(&key, Some(&ETag::new("a"))).unwrap(), 0..5), None);
    assert_eq!(read(&cache, cache.object(&key, Some(&ETag::new("b"))).unwrap(), 0..5), None);
}

#[test]
fn s801_a_damaged_segment_is_deleted_and_can_be_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path());
    let (id, data) = (object(&cache, 1), bytes(2, 50_000));
    cache.store(id, 0, &data);
    let [file] = &files(dir.path())[..] else { panic!("one segment") };
    fs::File::options().write(true).open(file).unwrap().write_all_at(&[!data[9000]], 4096 + 9000).unwrap();
    assert!(read(&cache, id, 20_000..30_000).is_some(), "other pages are right");
    assert_eq!(read(&cache, id, 0..50_000), None);
    assert!(!file.exists());
    assert_eq!(cache.counts().damaged, 1);
    cache.store(id, 0, &data);
    assert!(read(&cache, id, 0..50_000).unwrap() == data);
}

/// Twice the limit is stored by two processes at once. What was used last stays.
#[test]
fn s802_files_take_at_most_the_limit_and_what_is_used_stays() {
    let dir = tempfile::tempdir().unwrap();
    let caches = [open(dir.path()), open(dir.path())];
    let kept = object(&caches[0], 1000);
    caches[0].store(kept, 0, &bytes(1000, 4096));
    for number in 0..128 {
        caches[number as usize % 2].store(object(&caches[0], number), 0, &bytes(number, SEGMENT_BYTES));
        // Each file was used a minute after the one before it, and one of them again and again.
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(number * 60);
        for file in files(dir.path()) {
            let file = fs::File::options().write(true).open(file).unwrap();
            if file.metadata().unwrap().modified().unwrap() > at + Duration::from_secs(1_000_000) {
                file.set_modified(at).unwrap();
            }
        }
        assert!(caches[0].contains(kept, 0..4096), "{number}");
        assert!(read(&caches[0], kept, 0..4096).is_some());
    }
    let used: u64 = files(dir.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(used <= LIMIT_BYTES + LIMIT_BYTES / 8, "{used}");
    assert!(used >= LIMIT_BYTES / 2, "{used}");
    let lower = DiskCache::open(dir.path(), LIMIT_BYTES / 4, "s3://bucket", Arc::new(SystemClock)).unwrap();
    lower.measure_all();
    let counts = lower.counts();
    assert!(counts.evicted_bytes > 0 && counts.used_bytes <= counts.limit_bytes, "{counts:?}");
    let evicted: u64 = caches.iter().map(|cache| cache.counts().evicted_bytes).sum();
    assert!(evicted >= LIMIT_BYTES / 2, "{evicted}");
}

#[test]
fn s803_a_directory_that_others_can_change_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    fs::set_permissions(dir.path().join("segments-1"), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = DiskCache::open(dir.path(), LIMIT_BYTES, "s3://bucket", Arc::new(SystemClock)).unwrap_err();
    assert!(refused.to_string().contains("can be written by others"), "{refused}");
}

/// A file where a directory should be makes every call fail.
#[test]
fn s801_a_failing_disk_is_a_miss() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path());
    fs::remove_dir_all(dir.path().join("segments-1")).unwrap();
    fs::write(dir.path().join("segments-1"), "").unwrap();
    let id = object(&cache, 1);
    assert!(!cache.store(id, 0, &[1; 100]));
    assert_eq!(read(&cache, id, 0..100), None);
    assert!(cache.counts().failures >= 2);
}
