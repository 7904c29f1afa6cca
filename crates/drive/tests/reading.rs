//! The read cache: repeated and concurrent reads.

use crate::fixture::{bucket_of, formatted, open, open_with};
use bytes::Bytes;
use drive::{Drive, OpenOptions};
use futures_util::{StreamExt as _, TryStreamExt as _};
use sim::device::{OperationKind, SimDevice};
use store::{Attributes, CopyOptions, GetOptions, ObjectKey, ObjectStore, Precondition, PutOptions, Tags};

const CACHE_BYTES: u64 = 8 << 20;

fn key(text: &str) -> ObjectKey {
    ObjectKey::new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn body(seed: u32, len: usize) -> Bytes {
    (0..len).map(|at| (at as u32 ^ seed).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

/// Returns the bytes read from the device since the last call.
fn read_bytes(device: &SimDevice) -> u64 {
    let done = device.take_operations().into_iter();
    done.filter(|done| done.kind == OperationKind::Read).map(|done| done.len).sum()
}

async fn get(
    store: &dyn ObjectStore,
    name: &str,
    range: Option<std::ops::Range<u64>>,
) -> store::Result<Bytes> {
    let object = store.get(&key(name), GetOptions { range, ..GetOptions::default() }).await?;
    Ok(object.body.try_collect::<Vec<Bytes>>().await?.concat().into())
}

async fn put(store: &dyn ObjectStore, name: &str, bytes: &Bytes) -> store::ObjectRef {
    store.put(&key(name), bytes.clone().into(), PutOptions::default()).await.unwrap()
}

fn open_cached(device: &SimDevice) -> Drive {
    open_with(device, OpenOptions { read_cache_bytes: CACHE_BYTES, ..OpenOptions::default() }).unwrap()
}

/// The checksums of a run were read first and separately, however short the run was.
#[tokio::test(flavor = "multi_thread")]
async fn s353_a_cold_object_of_less_than_a_mebibyte_takes_one_read_of_the_device() {
    let device = formatted();
    let drive = open_with(&device, OpenOptions { read_cache_bytes: 0, ..OpenOptions::default() }).unwrap();
    let store = bucket_of(&drive).await;
    let reads = || {
        let done = device.take_operations().into_iter();
        done.filter(|done| done.kind == OperationKind::Read).count()
    };
    for (len, expected) in [(300_000, 1), (1_000_000, 1), (2_500_000, 4)] {
        let bytes = body(3, len);
        put(&*store, "object", &bytes).await;
        drive.close().await.unwrap();
        get(&*store, "object", Some(0..1)).await.unwrap();
        reads();
        assert_eq!(get(&*store, "object", None).await.unwrap(), bytes);
        assert_eq!(reads(), expected, "{len}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s313_recently_read_or_stored_bytes_need_no_read_of_the_device() {
    let device = formatted();
    let drive = open_cached(&device);
    let store = bucket_of(&drive).await;
    let (small, large) = (body(1, 70_000), body(2, 3_300_000));
    put(&*store, "small", &small).await;
    put(&*store, "large", &large).await;
    read_bytes(&device);
    assert_eq!(get(&*store, "small", None).await.unwrap(), small);
    assert_eq!(get(&*store, "large", None).await.unwrap(), large);
    assert_eq!(read_bytes(&device), 0, "the object was just stored");
    drop((store, drive));
    let drive = open_cached(&device);
    let store = store::Buckets::open(&drive, "photos").await.unwrap();
    assert_eq!(get(&*store, "small", None).await.unwrap(), small);
    read_bytes(&device);
    assert_eq!(get(&*store, "large", None).await.unwrap(), large);
    assert!(read_bytes(&device) >= 3_300_000, "the first read after the opening");
    for range in [None, Some(0..3_300_000), Some(1_048_576..2_097_152), Some(2_097_160..3_300_000)] {
        let expected = range
            .clone()
            .map_or(large.clone(), |range| large.slice(range.start as usize..range.end as usize));
        assert_eq!(get(&*store, "large", range.clone()).await.unwrap(), expected);
        assert_eq!(read_bytes(&device), 0, "{range:?}");
    }
    for range in [5..9, 65_530..65_540, 69_999..70_000] {
        let expected = small.slice(range.start as usize..range.end as usize);
        assert_eq!(get(&*store, "small", Some(range)).await.unwrap(), expected);
    }
    drive.close().await.unwrap();
    drop((store, drive));
    let drive = open_cached(&device);
    let store = store::Buckets::open(&drive, "photos").await.unwrap();
    assert_eq!(get(&*store, "small", Some(0..10)).await.unwrap(), small.slice(..10));
    read_bytes(&device);
    assert_eq!(get(&*store, "small", None).await.unwrap(), small, "a small object is read as a whole");
    assert_eq!(read_bytes(&device), 0);
}

/// Only small objects were cached when they were stored, so the next step of a pipeline read larger ones from the device.
#[tokio::test(flavor = "multi_thread")]
async fn s354_bytes_just_stored_in_runs_are_cached_by_every_kind_of_write() {
    let device = formatted();
    let options = OpenOptions { read_cache_bytes: 4 * CACHE_BYTES, ..OpenOptions::default() };
    let drive = open_with(&device, options).unwrap();
    let store = bucket_of(&drive).await;
    let (large, part) = (body(1, 2_500_000), body(2, 5 << 20));

    let mut writer = store.writer(&key("streamed"), Some(large.len() as u64)).await.unwrap().unwrap();
    for piece in large.chunks(70_000) {
        writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    let streamed = writer.finish(PutOptions::default()).await.unwrap();
    read_bytes(&device);
    assert_eq!(get(&*store, "streamed", None).await.unwrap(), large);
    store.rename(&streamed, &key("renamed"), Precondition::None).await.unwrap();
    assert_eq!(get(&*store, "renamed", None).await.unwrap(), large);
    assert_eq!(read_bytes(&device), 0, "an object that was streamed and renamed");

    let upload = store.multipart(&key("parts"), Attributes::default(), Tags::default()).await.unwrap();
    upload.put_part(2, large.clone().into()).await.unwrap();
    upload.put_part(1, part.clone().into()).await.unwrap();
    upload.complete(Precondition::None).await.unwrap();
    let joined = Bytes::from([&part[..], &large].concat());
    read_bytes(&device);
    assert_eq!(get(&*store, "parts", None).await.unwrap(), joined);
    assert_eq!(read_bytes(&device), 0, "an object of two parts");

    let source = put(&*store, "source", &joined).await;
    let upload = store.multipart(&key("mixed"), Attributes::default(), Tags::default()).await.unwrap();
    upload.copy_part(1, &source, 1000..(5 << 20) + 3000).await.unwrap();
    upload.put_part(2, large.clone().into()).await.unwrap();
    upload.complete(Precondition::None).await.unwrap();
    let mixed = Bytes::from([&joined[1000..(5 << 20) + 3000], &large].concat());
    assert_eq!(get(&*store, "mixed", None).await.unwrap(), mixed, "a copied part and a sent one");
}

/// Bytes of overwritten and deleted objects stayed in the cache, and left no room for those stored last.
#[tokio::test(flavor = "multi_thread")]
async fn s354_overwritten_and_deleted_bytes_leave_the_cache() {
    let device = formatted();
    let drive = open_cached(&device);
    let store = bucket_of(&drive).await;
    for round in 0..10 {
        let large = body(round, 3_000_000);
        put(&*store, "large", &large).await;
        read_bytes(&device);
        assert_eq!(get(&*store, "large", None).await.unwrap(), large);
        assert_eq!(read_bytes(&device), 0, "{round}");
        put(&*store, "another", &body(!round, 3_000_000)).await;
        store.delete(&key("another"), Precondition::None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s313_the_cache_never_returns_stale_bytes() {
    let device = formatted();
    let drive = open_cached(&device);
    let store = bucket_of(&drive).await;
    for round in 0..40 {
        let (small, large) = (body(round, 5000 + round as usize % 3), body(!round, 1_500_000));
        let object = put(&*store, "large", &large).await;
        put(&*store, "small", &small).await;
        assert_eq!(get(&*store, "large", None).await.unwrap(), large, "{round}");
        assert_eq!(get(&*store, "small", None).await.unwrap(), small, "{round}");
        store.copy(&object, &key("copy"), CopyOptions::default()).await.unwrap();
        store.delete(&key("large"), Precondition::None).await.unwrap();
        assert!(get(&*store, "large", None).await.is_err());
        assert_eq!(get(&*store, "copy", None).await.unwrap(), large, "{round}");
        store.set_tags(&key("small"), Tags::from([("round".into(), round.to_string())])).await.unwrap();
        assert_eq!(get(&*store, "small", None).await.unwrap(), small, "{round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s313_scrub_and_a_drive_without_a_cache_read_the_device() {
    let device = formatted();
    let drive = open_cached(&device);
    let store = bucket_of(&drive).await;
    let (small, large) = (body(1, 200_000), body(2, 2_000_000));
    put(&*store, "small", &small).await;
    put(&*store, "large", &large).await;
    assert_eq!(get(&*store, "large", None).await.unwrap(), large);
    read_bytes(&device);
    assert!(drive.scrub(|_| {}).await.unwrap().damaged.is_empty());
    assert!(read_bytes(&device) >= 2_200_000);
    drop((store, drive));
    let drive = open_with(&device, OpenOptions { read_cache_bytes: 0, ..OpenOptions::default() }).unwrap();
    let store = store::Buckets::open(&drive, "photos").await.unwrap();
    for _ in 0..2 {
        read_bytes(&device);
        assert_eq!(get(&*store, "large", None).await.unwrap(), large);
        assert_eq!(get(&*store, "small", None).await.unwrap(), small);
        assert!(read_bytes(&device) >= 2_200_000);
    }
}

/// A scrub did not read a damaged upload part, and the array computed parity from it (world 300302 of arrays).
#[tokio::test]
async fn a_scrub_reads_the_parts_of_uploads() {
    let device = formatted();
    let drive = open_cached(&device);
    let store = bucket_of(&drive).await;
    let (uploads, part) = (store.uploads().unwrap(), body(3, 1_000_000));
    let id = uploads.begin(&key("object"), Attributes::default(), Tags::new()).await.unwrap();
    let bytes = Box::pin(futures_util::stream::iter([Ok(part)]));
    uploads.put_part(&key("object"), &id, 1, bytes, Box::new(|| Ok(None))).await.unwrap();
    let scrubbed = drive.scrub(|_| {}).await.unwrap();
    assert_eq!((scrubbed.objects, scrubbed.bytes, scrubbed.damaged), (1, 1_000_000, Vec::new()));
}

/// The first reader stops reading, like a client on a slow line. Later readers wait for the device, not for the first reader.
#[tokio::test(flavor = "multi_thread")]
async fn s314_concurrent_readers_share_a_read_and_do_not_wait_for_each_other() {
    let device = formatted();
    let drive = open_cached(&device);
    let store = bucket_of(&drive).await;
    let large = body(3, 6_000_000);
    put(&*store, "large", &large).await;
    read_bytes(&device);
    let mut slow = store.get(&key("large"), GetOptions::default()).await.unwrap();
    let first = slow.body.next().await.unwrap().unwrap();
    assert_eq!(first, large.slice(..first.len()));
    let readers = (0..8).map(|_| get(&*store, "large", None));
    for read in futures_util::future::join_all(readers).await {
        assert_eq!(read.unwrap(), large);
    }
    let rest: Vec<Bytes> = slow.body.try_collect().await.unwrap();
    assert_eq!(rest.concat(), large.slice(first.len()..));
    let read = read_bytes(&device);
    assert!(read < 2 * 6_000_000, "{read} bytes for nine readers");
}

/// Reading a thousand objects once does not evict objects that are read repeatedly.
#[tokio::test(flavor = "multi_thread")]
async fn s313_a_scan_does_not_evict_what_is_read_repeatedly() {
    let device = formatted();
    let drive = open_cached(&device);
    let store = bucket_of(&drive).await;
    let once = body(9, 100_000);
    for number in 0..20 {
        put(&*store, &format!("hot-{number}"), &body(number, 100_000)).await;
    }
    for number in 0..400 {
        put(&*store, &format!("once-{number}"), &once).await;
    }
    for round in 0..3 {
        for number in 0..20 {
            assert_eq!(
                get(&*store, &format!("hot-{number}"), None).await.unwrap(),
                body(number, 100_000),
                "{round}"
            );
        }
    }
    for number in 0..400 {
        assert_eq!(get(&*store, &format!("once-{number}"), None).await.unwrap(), once);
    }
    read_bytes(&device);
    for number in 0..20 {
        get(&*store, &format!("hot-{number}"), None).await.unwrap();
    }
    let read = read_bytes(&device);
    assert!(read <= 5 * 110_000, "{read} bytes of the objects that are read repeatedly");
}

/// Every request looks up settings, most of which do not exist.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_and_its_settings_are_found_in_tables_without_waiting() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    put(&*store, "small", &body(1, 100)).await;
    drive.close().await.unwrap();
    let settings = store.settings().unwrap();
    settings.get("cors").await.unwrap();
    get(&*store, "small", None).await.unwrap();
    read_bytes(&device);
    assert_eq!(settings.get("cors").await.unwrap(), None);
    assert_eq!(get(&*store, "small", None).await.unwrap(), body(1, 100));
    assert_eq!(read_bytes(&device), 0);
}
