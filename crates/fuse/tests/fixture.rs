//! A file system over an in-memory store, mounted in a temporary directory.

use bytes::Bytes;
use fuse::{MountOptions, Operation, Session};
use futures_util::TryStreamExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use store::memory::MemoryStore;
use store::{
    Clock, Entropy, GetOptions, ObjectKey, ObjectStore, Payload, Precondition, PutOptions, Timestamp,
};
use tokio::runtime::Runtime;
use vfs::Filesystem;

/// A mount and everything that it needs. Dropping it unmounts.
pub(crate) struct Mount {
    pub(crate) session: Option<Session>,
    pub(crate) fs: Arc<Filesystem>,
    pub(crate) clock: Arc<StoppedClock>,
    pub(crate) runtime: Runtime,
    store: Arc<MemoryStore>,
    root: PathBuf,
    _dirs: [tempfile::TempDir; 2],
}

/// A clock that only `advance` moves, and that can be made to panic.
#[derive(Debug)]
pub(crate) struct StoppedClock {
    now_ns: AtomicI64,
    panics: AtomicBool,
}

impl StoppedClock {
    /// Moves the clock by slightly more than `by`, because successive moments of a stopped clock are a nanosecond apart.
    pub(crate) fn advance(&self, by: Duration) {
        let by = by + Duration::from_micros(100);
        self.now_ns.fetch_add(i64::try_from(by.as_nanos()).unwrap(), Ordering::Relaxed);
    }

    /// Sets whether reading the time panics.
    pub(crate) fn set_panics(&self, panics: bool) {
        self.panics.store(panics, Ordering::Relaxed);
    }
}

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        assert!(!self.panics.load(Ordering::Relaxed), "the clock was made to panic");
        Timestamp(self.now_ns.load(Ordering::Relaxed))
    }
}

/// The time for which kernel and file system cache what they know: longer than any test runs.
pub(crate) const TTL: Duration = Duration::from_secs(3600);

pub(crate) fn options() -> MountOptions {
    MountOptions {
        root: vfs::Ino::ROOT,
        source: "s3://bucket/with space, comma".to_owned(),
        read_only: false,
        allow_other: false,
        no_exec: false,
        suid: false,
        dev: false,
        locks: fuse::Locks::Kernel,
        threads: 3,
        is_shared: false,
        virtual_files: None,
    }
}

impl Mount {
    pub(crate) fn new() -> Self {
        Self::with(&options())
    }

    pub(crate) fn with(options: &MountOptions) -> Self {
        Self::with_config(options, |_| ())
    }

    pub(crate) fn with_config(options: &MountOptions, edit: impl FnOnce(&mut vfs::Config)) -> Self {
        let runtime = Runtime::new().unwrap();
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let clock = Arc::new(StoppedClock {
            now_ns: AtomicI64::new(1_700_000_000_000_000_000),
            panics: AtomicBool::new(false),
        });
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let parts = vfs::Dependencies {
            store: store.clone(),
            clock: clock.clone(),
            entropy: Arc::new(Entropy::new(1)),
            engine: Arc::new(meta::MemoryEngine::new(meta::LogCap::default())),
            record: None,
        };
        let mut config = vfs::Config {
            metadata_ttl: TTL,
            page_cache_above: true,
            ..vfs::Config::new(dirs[1].path().to_owned())
        };
        edit(&mut config);
        let fs = Filesystem::mount(parts, config).unwrap();
        let root = fuse::check_mount_point(dirs[0].path(), false).unwrap();
        let session = fuse::mount(fs.clone(), &root, options, runtime.handle()).unwrap();
        Self { session: Some(session), fs, clock, runtime, store, root, _dirs: dirs }
    }

    /// Returns a path in the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the number of requests of one operation so far.
    pub(crate) fn count(&self, operation: Operation) -> u64 {
        self.session.as_ref().unwrap().meter().counts().of(operation)
    }

    /// Returns an object's bytes, read directly from the store.
    pub(crate) fn object(&self, key: &str) -> Vec<u8> {
        let key = ObjectKey::try_from(key).unwrap();
        self.runtime.block_on(async {
            let object = self.store.get(&key, GetOptions::default()).await.unwrap();
            let pieces: Vec<Bytes> = object.body.try_collect().await.unwrap();
            pieces.concat()
        })
    }

    /// Deletes an object directly at the store, as another client would.
    pub(crate) fn delete(&self, key: &str) {
        let key = ObjectKey::try_from(key).unwrap();
        self.runtime.block_on(self.store.delete(&key, Precondition::None)).unwrap();
    }

    /// Stores an object directly at the store, as another client would.
    pub(crate) fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        let key = ObjectKey::try_from(key).unwrap();
        self.runtime
            .block_on(self.store.put(&key, Payload::from(bytes.into()), PutOptions::default()))
            .unwrap();
    }
}

/// Waits until a condition holds: invalidations reach the kernel with a delay.
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("timed out while waiting until {what}");
}

/// Returns pseudo-random bytes.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let entropy = Entropy::new(len as u64);
    (0..len.div_ceil(8)).flat_map(|_| entropy.next_u64().to_le_bytes()).take(len).collect()
}
