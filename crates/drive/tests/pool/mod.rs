//! Pools: placement of keys, crashes, and missing drives.

mod members;
mod power_cuts;

use bytes::Bytes;
use drive::device::BlockDevice;
use drive::pool::{self, Pool, PoolOptions};
use drive::{Drive, FormatOptions, OpenOptions};
use futures_util::TryStreamExt as _;
use futures_util::future::join_all;
use sim::device::SimDevice;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::conformance::{self, Capabilities};
use store::{
    Buckets, CompleteOptions, CopyOptions, Entropy, GetOptions, ListRequest, ListVersions, ObjectKey,
    ObjectStore, Precondition, PutOptions, StoreError, SystemClock, VersionEntry, Versioning,
};

const MIB: u64 = 1 << 20;
const COMPLETE: PoolOptions = PoolOptions { degraded: false };
const DEGRADED: PoolOptions = PoolOptions { degraded: true };

/// Returns devices of these lengths, each with a drive.
fn formatted(lengths_mib: &[u64]) -> Vec<SimDevice> {
    lengths_mib.iter().enumerate().map(|(number, &mib)| formatted_one(mib, number as u64 + 11)).collect()
}

fn formatted_one(mib: u64, seed: u64) -> SimDevice {
    let device = SimDevice::new(mib * MIB);
    let as_device: Arc<dyn BlockDevice> = Arc::new(device.clone());
    Drive::format(&as_device, FormatOptions::default(), &Entropy::new(seed)).unwrap();
    device
}

fn drives(devices: &[SimDevice]) -> Vec<Drive> {
    let open = |device: &SimDevice| {
        Drive::open(Arc::new(device.clone()), OpenOptions::default(), Arc::new(SystemClock)).unwrap()
    };
    devices.iter().map(open).collect()
}

async fn joined(lengths_mib: &[u64]) -> Vec<SimDevice> {
    let devices = formatted(lengths_mib);
    pool::join(&drives(&devices), &Entropy::new(3)).await.unwrap();
    devices
}

async fn open(devices: &[SimDevice]) -> drive::Result<Pool> {
    Pool::open(drives(devices), COMPLETE).await
}

/// Makes a pool of three unequal drives.
async fn three() -> store::Result<Pool> {
    Ok(open(&joined(&[80, 128, 256]).await).await?)
}

async fn photos(pool: &Pool) -> Arc<dyn ObjectStore> {
    if pool.list().await.unwrap().is_empty() {
        pool.create("photos").await.unwrap();
    }
    Buckets::open(pool, "photos").await.unwrap()
}

fn key(text: &str) -> ObjectKey {
    ObjectKey::new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

async fn put(store: &dyn ObjectStore, name: &str, body: impl Into<Bytes>) -> store::Result<store::ObjectRef> {
    store.put(&key(name), body.into().into(), PutOptions::default()).await
}

async fn read(store: &dyn ObjectStore, name: &str) -> store::Result<Bytes> {
    let object = store.get(&key(name), GetOptions::default()).await?;
    Ok(object.body.try_collect::<Vec<Bytes>>().await?.concat().into())
}

/// Lists all keys, in pages of `limit` entries.
async fn listed(store: &dyn ObjectStore, delimiter: Option<u8>, limit: usize) -> store::Result<Vec<String>> {
    let mut texts = Vec::new();
    let mut token = None;
    loop {
        let request = ListRequest { delimiter, token, limit, ..ListRequest::default() };
        let page = store.list(request).await?;
        assert!(page.entries.len() <= limit);
        texts.extend(page.entries.iter().map(|entry| String::from_utf8_lossy(entry.text()).into_owned()));
        token = page.next;
        if token.is_none() {
            return Ok(texts);
        }
    }
}

/// Returns for each key the drives that have an object of it.
async fn homes(pool: &Pool) -> BTreeMap<String, Vec<usize>> {
    let mut homes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, drive) in pool.drives() {
        let Ok(store) = Buckets::open(&drive, "photos").await else { continue };
        for text in listed(&*store, None, 1000).await.unwrap() {
            homes.entry(text).or_default().push(number);
        }
    }
    homes
}

/// Checks that every key is on one drive only.
async fn assert_one_home_each(pool: &Pool) -> BTreeMap<String, usize> {
    let homes = homes(pool).await;
    assert!(homes.values().all(|on| on.len() == 1), "{homes:?}");
    homes.into_iter().map(|(text, on)| (text, on[0])).collect()
}

/// Checks that everything of a key is on one drive, incomplete uploads included.
async fn assert_one_home_of_all(pool: &Pool) {
    let homes = assert_one_home_each(pool).await;
    let mut uploads: BTreeMap<String, usize> = BTreeMap::new();
    for (number, drive) in pool.drives() {
        let store = Buckets::open(&drive, "photos").await.unwrap();
        for upload in store.uploads().unwrap().list(b"").await.unwrap() {
            let name = upload.key.to_string();
            assert_eq!(*homes.get(&name).unwrap_or(&number), number, "{name} is elsewhere than its upload");
            assert_eq!(*uploads.entry(name).or_insert(number), number, "uploads on two drives");
        }
    }
}

async fn in_parts(store: &dyn ObjectStore, name: &str, body: Bytes) -> store::Result<()> {
    let (uploads, key) = (store.uploads().unwrap(), key(name));
    let id = uploads.begin(&key, Default::default(), Default::default()).await?;
    let body = futures_util::stream::iter([Ok(body)]);
    uploads.put_part(&key, &id, 1, Box::pin(body), Box::new(|| Ok(None))).await?;
    uploads.complete(&key, &id, &[1], CompleteOptions::default()).await.map(drop)
}

fn is_unavailable<T>(result: store::Result<T>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}

// Conformance.

async fn bucket() -> store::Result<Arc<dyn ObjectStore>> {
    let pool = three().await?;
    pool.create("tests").await?;
    Buckets::open(&pool, "tests").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_bucket_conforms() {
    conformance::run(bucket, Capabilities::ALL).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_uploads_conform() {
    conformance::run_uploads(bucket, Capabilities::ALL).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_versions_conform() {
    conformance::run_versions(bucket, Capabilities::ALL).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_buckets_conform() {
    let fresh = || async { Ok(Arc::new(three().await?) as Arc<dyn Buckets>) };
    conformance::run_buckets(fresh).await.unwrap();
}

// Placement of keys.

#[tokio::test(flavor = "multi_thread")]
async fn s340_new_keys_go_to_drives_by_their_share_of_what_is_free() {
    let pool = three().await.unwrap();
    let store = photos(&pool).await;
    for number in 0..400 {
        put(&*store, &format!("key-{number}"), vec![1; 2000]).await.unwrap();
    }
    let homes = assert_one_home_each(&pool).await;
    let count = |drive: usize| homes.values().filter(|on| **on == drive).count();
    let free: Vec<u64> = pool.drives().iter().map(|(_, drive)| drive.info().available_bytes).collect();
    for (drive, free_bytes) in free.iter().enumerate() {
        let expected = (400 * free_bytes / free.iter().sum::<u64>()) as usize;
        assert!(
            count(drive).abs_diff(expected) < 40,
            "{} on drive {drive} instead of {expected}",
            count(drive)
        );
    }
}

/// Three unequal drives hold about their total capacity. Existing keys are not stored elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn s340_s341_unequal_drives_become_full_at_the_same_time() {
    let pool = open(&joined(&[32, 48, 96]).await).await.unwrap();
    let store = photos(&pool).await;
    let available =
        |pool: &Pool| pool.drives().iter().map(|(_, drive)| drive.info().available_bytes).sum::<u64>();
    let at_first = available(&pool);
    let mut stored = 0;
    let full = loop {
        match put(&*store, &format!("key-{stored:04}"), vec![stored as u8; 2 << 20]).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::Full(_)), "{full}");
    assert!(stored * 2 * MIB > at_first * 9 / 10, "{stored} objects of 2 MiB in {} MiB", at_first / MIB);
    for number in 0..stored {
        assert_eq!(read(&*store, &format!("key-{number:04}")).await.unwrap(), vec![number as u8; 2 << 20]);
    }
    // A key keeps its home and its bytes if its new bytes find no room there.
    let homes = assert_one_home_each(&pool).await;
    let (name, home) = homes.iter().next().unwrap();
    let refused = put(&*store, name, vec![7; 8 << 20]).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    assert_eq!(read(&*store, name).await.unwrap().len(), 2 << 20);
    // Deletions make room, and a new key is placed there.
    for (gone, _) in homes.iter().filter(|(_, on)| *on == home).take(5) {
        store.delete(&key(gone), Precondition::None).await.unwrap();
    }
    put(&*store, "new", vec![7; 8 << 20]).await.unwrap();
    assert_eq!(assert_one_home_each(&pool).await["new"], *home);
}

/// Makes a pool in which uploads are placed on the only drive with room for a long object, and other objects on any drive.
async fn pool_with_one_roomy_drive() -> Pool {
    open(&joined(&[56, 56, 96]).await).await.unwrap()
}

/// Every writer of a new key determines a home, and several do so at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s341_concurrent_writers_of_a_new_key_get_one_home() {
    let pool = pool_with_one_roomy_drive().await;
    let store = photos(&pool).await;
    for round in 0..40 {
        let name = format!("key-{round}");
        let write = |writer: usize| {
            let (store, name) = (store.clone(), name.clone());
            tokio::spawn(async move {
                match writer {
                    0 => in_parts(&*store, &name, Bytes::from(vec![1; 5000])).await.unwrap(),
                    1 => {
                        let begun =
                            store.multipart(&key(&name), Default::default(), Default::default()).await;
                        let parts = begun.unwrap();
                        parts.put_part(1, Bytes::from(vec![1; 5000]).into()).await.unwrap();
                        parts.complete(Precondition::None).await.unwrap();
                    }
                    2 => store.delete(&key(&name), Precondition::None).await.unwrap(),
                    _ => drop(put(&*store, &name, vec![2; writer * 100_000]).await.unwrap()),
                }
            })
        };
        let done = join_all((0..6).map(|writer| write((writer + round) % 6))).await;
        done.into_iter().for_each(|done| done.unwrap());
    }
    assert_one_home_each(&pool).await;
}

/// A change continues after its caller was cancelled. The next writer of the key must not choose another home meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn s341_a_cancelled_write_keeps_its_home() {
    let pool = pool_with_one_roomy_drive().await;
    let store = photos(&pool).await;
    for round in 0..200 {
        let name = format!("key-{round}");
        let mut left = Box::pin(put(&*store, &name, vec![1; 3000]));
        for _ in 0..round % 8 {
            if futures_util::poll!(&mut left).is_ready() {
                break;
            }
        }
        drop(left);
        in_parts(&*store, &name, Bytes::from(vec![2; 10])).await.unwrap();
    }
    assert_one_home_of_all(&pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s341_uploads_and_versions_are_on_the_home_of_their_key() {
    let devices = joined(&[80, 128, 256]).await;
    let pool = open(&devices).await.unwrap();
    let store = photos(&pool).await;
    let mut ids = Vec::new();
    for number in 0..20 {
        let uploads = store.uploads().unwrap();
        let key = key(&format!("key-{number:02}"));
        let id = uploads.begin(&key, Default::default(), Default::default()).await.unwrap();
        let body = futures_util::stream::iter([Ok(Bytes::from_static(b"from parts"))]);
        uploads.put_part(&key, &id, 1, Box::pin(body), Box::new(|| Ok(None))).await.unwrap();
        ids.push((key, id));
    }
    drop((store, pool));
    devices.iter().for_each(|device| device.crash(1));
    let pool = open(&devices).await.unwrap();
    let store = photos(&pool).await;
    assert_eq!(store.uploads().unwrap().list(b"").await.unwrap().len(), 20);
    let versions = store.versions().unwrap();
    versions.set_state(Versioning::Enabled).await.unwrap();
    for (key, id) in &ids {
        // On the home of the upload, whatever drive would be chosen for the length.
        store.put(key, Bytes::from(vec![1; 300_000]).into(), PutOptions::default()).await.unwrap();
        store.delete(key, Precondition::None).await.unwrap();
        assert!(matches!(store.head(key).await, Err(StoreError::NotFound(_))));
        assert!(versions.find(key, None).await.unwrap().stored.is_none(), "the newest is a delete marker");
        store.uploads().unwrap().complete(key, id, &[1], CompleteOptions::default()).await.unwrap();
        store.put(key, "last".into(), PutOptions::default()).await.unwrap();
    }
    assert_one_home_each(&pool).await;
    let all = versions.list(ListVersions { limit: 1000, ..ListVersions::default() }).await.unwrap();
    assert_eq!(all.len(), 80);
    for four in all.chunks(4) {
        let VersionEntry::Version(newest) = &four[0] else { panic!("{four:?}") };
        assert!(newest.is_newest && four.iter().all(|entry| entry.text() == newest.key.as_bytes()));
        assert_eq!(
            four.iter().filter(|entry| matches!(entry, VersionEntry::Version(v) if v.is_newest)).count(),
            1
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s342_copies_and_renames_work_across_drives() {
    let pool = three().await.unwrap();
    let store = photos(&pool).await;
    for (number, len) in [10, 70_000, 300_000, 20 << 20].into_iter().enumerate() {
        let body: Bytes = (0..len).map(|at: u32| (at / 7) as u8).collect();
        let options = PutOptions {
            etag: Some(store::ETag::new("0123456789abcdef0123456789abcdef")),
            ..Default::default()
        };
        let source = store.put(&key(&format!("from-{number}")), body.clone().into(), options).await.unwrap();
        for other in 0..10 {
            put(&*store, &format!("to-{number}-{other}"), "before").await.unwrap();
        }
        for other in 0..10 {
            let to = format!("to-{number}-{other}");
            let copied = store.copy(&source, &key(&to), CopyOptions::default()).await.unwrap();
            assert_eq!(read(&*store, &to).await.unwrap(), body);
            assert_eq!(copied.etag, source.etag, "its bytes are the same");
        }
        let new = format!("new-{number}");
        store.copy(&source, &key(&new), CopyOptions::default()).await.unwrap();
        let homes = assert_one_home_each(&pool).await;
        assert_eq!(homes[&new], homes[&format!("from-{number}")], "nothing is moved");
        let targets = (0..10).map(|other| homes[&format!("to-{number}-{other}")]);
        assert!(targets.clone().any(|on| on != homes[&new]), "at least one target is on another drive");
        let away = (0..10).find(|other| homes[&format!("to-{number}-{other}")] != homes[&new]).unwrap();
        let to = format!("to-{number}-{away}");
        put(&*store, &to, "before").await.unwrap();
        store.rename(&source, &key(&to), Precondition::None).await.unwrap();
        assert_eq!(read(&*store, &to).await.unwrap(), body);
        assert!(store.find(&source.key).await.unwrap().is_none());
    }
    assert_one_home_each(&pool).await;
}

// Listings.

#[tokio::test(flavor = "multi_thread")]
async fn s343_pages_of_any_length_list_every_key_once_and_in_order() {
    let pool = three().await.unwrap();
    let store = photos(&pool).await;
    let mut keys: Vec<String> = (0..60).map(|n| format!("{}/{}", n % 7, n)).collect();
    keys.extend((0..25).map(|n| format!("top-{n}")));
    keys.extend(["0".to_owned(), "3".to_owned(), "3/".to_owned(), "9/9/9".to_owned()]);
    keys.sort();
    store.versions().unwrap().set_state(Versioning::Enabled).await.unwrap();
    for name in &keys {
        put(&*store, name, "one").await.unwrap();
        put(&*store, name, "two").await.unwrap();
    }
    let mut folded: Vec<String> =
        keys.iter().map(|name| name.split_inclusive('/').next().unwrap().to_owned()).collect();
    folded.dedup();
    for limit in [1, 2, 3, 7, 11, 1000] {
        assert_eq!(listed(&*store, None, limit).await.unwrap(), keys, "{limit}");
        assert_eq!(listed(&*store, Some(b'/'), limit).await.unwrap(), folded, "{limit}");
        let twice: Vec<String> = keys.iter().flat_map(|name| [name.clone(), name.clone()]).collect();
        assert_eq!(listed_versions(&*store, None, limit).await, twice, "{limit}");
        let folds = |name: &String| if name.ends_with('/') { 1 } else { 2 };
        let twice: Vec<String> = folded.iter().flat_map(|name| vec![name.clone(); folds(name)]).collect();
        assert_eq!(listed_versions(&*store, Some(b'/'), limit).await, twice, "{limit}");
    }
}

async fn listed_versions(store: &dyn ObjectStore, delimiter: Option<u8>, limit: usize) -> Vec<String> {
    let mut texts = Vec::new();
    let (mut after, mut after_version) = (None, None);
    loop {
        let request = ListVersions { delimiter, after, after_version, limit, ..ListVersions::default() };
        let page = store.versions().unwrap().list(request).await.unwrap();
        texts.extend(page.iter().map(|entry| String::from_utf8_lossy(entry.text()).into_owned()));
        let Some(last) = page.last().filter(|_| page.len() == limit) else { return texts };
        after = Some(Bytes::copy_from_slice(last.text()));
        after_version = match last {
            VersionEntry::Version(version) => Some(version.id.clone()),
            VersionEntry::Prefix(_) => None,
        };
    }
}

#[tokio::test]
async fn a_check_accepts_the_entries_of_a_pool() {
    let pool = three().await.unwrap();
    put(&*photos(&pool).await, "key", "x").await.unwrap();
    for (_, drive) in pool.drives() {
        assert_eq!(drive.check().await.unwrap().problems, Vec::<String>::new());
    }
}
