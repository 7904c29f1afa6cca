//! Concurrency: operations do not wait for the device on behalf of others.

use crate::fixture::{DEVICE_BYTES, bucket_of, formatted, key};
use bytes::Bytes;
use drive::device::BlockDevice;
use drive::{Drive, OpenOptions};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use sim::device::SimDevice;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Attributes, ListVersions, ObjectKey, PutOptions, SystemClock, Versioning};

/// Longest duration of a test before it counts as hanging.
const AT_MOST: Duration = Duration::from_secs(600);

type Hook = Box<dyn FnMut() + Send>;

/// A device that calls a hook once, in the next read, write or flush.
struct HookedDevice {
    device: SimDevice,
    in_read: Mutex<Option<Hook>>,
    in_write: Mutex<Option<Hook>>,
    in_flush: Mutex<Option<Hook>>,
    /// Writes of the first superblock copy, one for each checkpoint.
    checkpoints: AtomicUsize,
}

impl fmt::Debug for HookedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}

impl HookedDevice {
    fn new() -> Arc<Self> {
        let (in_read, in_write, in_flush) = Default::default();
        Arc::new(Self { device: formatted(), in_read, in_write, in_flush, checkpoints: AtomicUsize::new(0) })
    }

    fn open(self: &Arc<Self>, index_bytes: usize) -> Drive {
        let options = OpenOptions { index_bytes, ..OpenOptions::default() };
        Drive::open(self.clone(), options, Arc::new(SystemClock)).unwrap()
    }
}

impl BlockDevice for HookedDevice {
    fn len_bytes(&self) -> u64 {
        DEVICE_BYTES
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let hook = self.in_read.lock().unwrap().take();
        hook.into_iter().for_each(|mut hook| hook());
        self.device.read_at(at, into)
    }

    fn write_at(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.checkpoints.fetch_add(usize::from(at == 0), Ordering::Relaxed);
        let hook = self.in_write.lock().unwrap().take();
        hook.into_iter().for_each(|mut hook| hook());
        self.device.write_at(at, from)
    }

    fn flush(&self) -> io::Result<()> {
        let hook = self.in_flush.lock().unwrap().take();
        hook.into_iter().for_each(|mut hook| hook());
        self.device.flush()
    }
}

fn wait(until: &Receiver<()>) -> Result<(), RecvTimeoutError> {
    until.recv_timeout(AT_MOST)
}

/// After each commit every writer checked whether a checkpoint was due, and waited for a lock that the next commit held during its flush.
/// So all threads of the server stopped during a flush of a disk. While a frame is flushed, maintenance and `info` must return.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_do_not_wait_for_the_flush_of_a_commit() {
    let device = HookedDevice::new();
    let drive = device.open(1 << 20);
    let store = bucket_of(&drive).await;
    let (done, is_done) = channel();
    let (asks, runtime) = (drive.clone(), tokio::runtime::Handle::current());
    let (tell, told) = channel();
    let hook = move || {
        let (asks, runtime, done) = (asks.clone(), runtime.clone(), done.clone());
        std::thread::spawn(move || {
            drop(asks.info());
            runtime.block_on(asks.maintain()).unwrap();
            done.send(()).unwrap();
        });
        tell.send(wait(&is_done)).unwrap();
    };
    *device.in_flush.lock().unwrap() = Some(Box::new(hook));
    store.put(&key(0), Bytes::from_static(b"some").into(), PutOptions::default()).await.unwrap();
    assert_eq!(told.recv().unwrap(), Ok(()), "a call waits for a flush");
}

/// A PUT read the state of versioning, another client then enabled versioning and got the response, and the PUT replaced the object
/// without keeping its version. Here the PUT reads the index while versioning is being enabled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versioning_is_enabled_after_the_puts_that_did_not_see_it() {
    let device = HookedDevice::new();
    let put = async |drive: &Drive, number: usize| {
        let user = BTreeMap::from([("note".to_owned(), number.to_string().repeat(300))]);
        let attributes = Attributes { user, ..Attributes::default() };
        let store = store::Buckets::open(drive, "photos").await.unwrap();
        let options = PutOptions { attributes, ..PutOptions::default() };
        store.put(&key(number), "body".into(), options).await.unwrap();
        store
    };
    let drive = device.open(64 << 10);
    bucket_of(&drive).await;
    // The memory for the index does not hold all of them.
    for number in 0..1_000 {
        put(&drive, number).await;
    }
    drive.close().await.unwrap();
    let drive = device.open(64 << 10);
    let store = store::Buckets::open(&drive, "photos").await.unwrap();
    let (runtime, (tell, enabled)) = (tokio::runtime::Handle::current(), channel());
    let hook = move || {
        let (store, runtime, tell) = (store.clone(), runtime.clone(), tell.clone());
        let enabling = std::thread::spawn(move || {
            runtime.block_on(store.versions().unwrap().set_state(Versioning::Enabled)).unwrap();
        });
        // Long enough for a change that does not wait for the PUT.
        for _ in 0..300 {
            if !enabling.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        tell.send((enabling.is_finished(), enabling)).unwrap();
    };
    *device.in_read.lock().unwrap() = Some(Box::new(hook));
    put(&drive, 999).await;
    let (was_enabled_before, enabling) = enabled.try_recv().expect("the PUT reads the index");
    enabling.join().unwrap();
    assert!(!was_enabled_before, "a PUT that replaces an object was under way");
    let store = put(&drive, 999).await;
    let of_the_last = ListVersions {
        prefix: Bytes::copy_from_slice(key(999).as_bytes()),
        limit: 10,
        ..ListVersions::default()
    };
    let versions = store.versions().unwrap().list(of_the_last).await.unwrap();
    assert_eq!(versions.len(), 2, "{versions:?}");
}

/// A compaction excluded checkpoints while it merged tables, up to the whole index. The memtable became full, and every writer waited for
/// the end of the merge. Here the first write of the merge does not return before checkpoints were made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_are_made_while_tables_are_merged() {
    let device = HookedDevice::new();
    // Longer than 128 KiB, so that checkpoints do not merge them.
    let put = async |drive: &Drive, begins: usize, count: usize| {
        let store = store::Buckets::open(drive, "photos").await.unwrap();
        let puts = (begins..begins + count).map(|number| {
            let (store, name) = (store.clone(), ObjectKey::new(number.to_string().into_bytes()).unwrap());
            let words = (0..100).map(|word| (number as u64 * 100 + word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let user =
                BTreeMap::from([("note".to_owned(), words.map(|word| format!("{word:016x}")).collect())]);
            let options = PutOptions {
                attributes: Attributes { user, ..Attributes::default() },
                ..PutOptions::default()
            };
            async move { store.put(&name, Bytes::new().into(), options).await }
        });
        stream::iter(puts).buffer_unordered(20).try_collect::<Vec<_>>().await.unwrap();
    };
    let drive = device.open(64 << 20);
    drop(bucket_of(&drive).await);
    for table in 0..4 {
        put(&drive, table * 120, 120).await;
        drive.close().await.unwrap();
    }
    assert!(drive.info().tables.iter().all(|(len_bytes, _)| *len_bytes > 128 << 10), "{:?}", drive.info());
    drop(drive);

    let drive = device.open(256 << 10);
    let (release, is_released) = channel();
    let (begin, has_begun) = channel();
    let hook = move || {
        begin.send(()).unwrap();
        wait(&is_released).unwrap();
    };
    *device.in_write.lock().unwrap() = Some(Box::new(hook));
    let merging = tokio::spawn({
        let drive = drive.clone();
        async move { drive.maintain().await }
    });
    tokio::task::spawn_blocking(move || wait(&has_begun).unwrap()).await.unwrap();
    let before = device.checkpoints.load(Ordering::Relaxed);
    tokio::time::timeout(AT_MOST, put(&drive, 10_000, 300)).await.expect("writers wait for the compaction");
    let made = device.checkpoints.load(Ordering::Relaxed) - before;
    assert!(made >= 2, "{made} checkpoints");
    release.send(()).unwrap();
    merging.await.unwrap().unwrap();
    // The merged entries and those stored meanwhile are there, also after a power cut.
    drive.close().await.unwrap();
    drop(drive);
    device.device.crash(3);
    let drive = device.open(256 << 10);
    let entries: u64 = drive.info().table_entries();
    assert_eq!(entries, 1 + 4 * 120 + 300);
    assert!(drive.check().await.unwrap().problems.is_empty());
}
