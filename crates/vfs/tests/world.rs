//! The world of a test: a bucket, the mounts over it, and a clock that the test controls.

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use meta::{Engine, MemoryEngine};
use staging::joined::JoinedStore;
use staging::writeback::{Writeback, WritebackOptions};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::memory::{MemoryBuckets, MemoryLimits, MemoryStore};
use store::wrap::{Call, Faults, Faulty, Layer, Operation, RequestCounts, Trace, Traced, Wrapped};
use store::{
    Attributes, Buckets as _, Clock, Entropy, GetOptions, ListRequest, ObjectKey, ObjectMeta, ObjectStore,
    Pages, Payload, Precondition, PutOptions, StoreError, Timestamp,
};
use store_dir::{DirOptions, DirStore, Durability};
use tempfile::TempDir;
use tokio::sync::oneshot;
use vfs::{
    Attr, Caller, Changes, Config, Dependencies, DirectoryEntry, Filesystem, Handle, Ino, KeySpace, Kind,
    Mapping, Naming, Opened, Result, VolumeRecord,
};

pub(crate) const CALLER: Caller = Caller { uid: 1000, gid: 100, umask: 0 };
pub(crate) const MIB: usize = 1 << 20;

/// A clock that advances slightly at each reading, like a real one, and jumps on request.
#[derive(Debug, Default)]
pub(crate) struct TestClock {
    elapsed: AtomicI64,
    /// Offset by which the wall clock was set, in nanoseconds.
    set: AtomicI64,
}

/// Noon of the first of January 2026, UTC.
const NOON: i64 = 1_767_268_800_000_000_000;

impl TestClock {
    /// Lets time pass.
    pub(crate) fn advance(&self, by: Duration) -> Timestamp {
        let elapsed = self.elapsed.fetch_add(by.as_nanos() as i64, Ordering::SeqCst);
        Timestamp(NOON + elapsed + self.set.load(Ordering::SeqCst))
    }

    /// Sets the wall clock forward or back, without time passing.
    pub(crate) fn set(&self, by_secs: i64) {
        self.set.fetch_add(by_secs * 1_000_000_000, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.advance(Duration::from_micros(1))
    }

    fn monotonic(&self) -> Duration {
        self.now();
        Duration::from_nanos(self.elapsed.load(Ordering::SeqCst) as u64)
    }
}

/// Delays answers: the outcome of a call is already old when its caller gets it.
#[derive(Debug, Clone, Default)]
pub(crate) struct DelayedAnswers(Arc<Mutex<Vec<(Operation, DoneSender)>>>);

/// Notified when a call has taken effect, with a sender that releases its answer.
type DoneSender = oneshot::Sender<oneshot::Sender<()>>;

/// A call whose answer is held back.
pub(crate) struct HeldAnswer(oneshot::Receiver<oneshot::Sender<()>>);

impl DelayedAnswers {
    /// Holds back the answer of the next call of this kind; the call itself takes effect.
    pub(crate) fn hold(&self, operation: Operation) -> HeldAnswer {
        let (sender, receiver) = oneshot::channel();
        self.0.lock().unwrap().push((operation, sender));
        HeldAnswer(receiver)
    }
}

impl HeldAnswer {
    /// Waits until the call has taken effect. The answer is released when the result is sent to or dropped.
    pub(crate) async fn done(self) -> oneshot::Sender<()> {
        self.0.await.unwrap()
    }
}

impl Layer for DelayedAnswers {
    async fn around<T: Send>(
        &self,
        call: &Call,
        work: impl Future<Output = store::Result<T>> + Send,
    ) -> store::Result<T> {
        let done = work.await;
        let held = {
            let mut held = self.0.lock().unwrap();
            let at = held.iter().position(|(operation, _)| *operation == call.operation);
            at.map(|at| held.remove(at).1)
        };
        if let Some(held) = held {
            let (sender, receiver) = oneshot::channel();
            held.send(sender).ok();
            receiver.await.ok();
        }
        done
    }
}

/// The bucket as other clients see it, with the wrappers that a mount's requests pass.
#[derive(Clone)]
pub(crate) struct Bucket {
    store: Arc<dyn ObjectStore>,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) trace: Trace,
    pub(crate) faults: Faults,
    pub(crate) late: DelayedAnswers,
    /// The engine that all mounts share, if the bucket alone cannot restore all names.
    engine: Option<Arc<dyn Engine>>,
    _dir: Option<Arc<TempDir>>,
}

/// One mount of a bucket.
pub(crate) struct World {
    pub(crate) fs: Arc<Filesystem>,
    pub(crate) bucket: Bucket,
    /// The write-back log in front of the bucket, if the mount uses one.
    pub(crate) log: Option<Arc<Writeback>>,
    config: Config,
    cache: TempDir,
}

impl Bucket {
    /// Returns a bucket whose listings have no attributes, as those of S3.
    pub(crate) fn in_memory() -> Self {
        Self::in_memory_with(false)
    }

    /// Returns a bucket whose listings have the attributes of objects, as those of MinIO.
    pub(crate) fn listing_attributes() -> Self {
        Self::in_memory_with(true)
    }

    fn in_memory_with(lists_attributes: bool) -> Self {
        let clock = Arc::new(TestClock::default());
        let limits = MemoryLimits { part_bytes_min: 1, lists_attributes, ..MemoryLimits::default() };
        let store = MemoryStore::with_limits(clock.clone(), limits);
        Self::of(Arc::new(store), clock, None)
    }

    pub(crate) fn in_directory() -> Self {
        let clock = Arc::new(TestClock::default());
        let dir = TempDir::new().unwrap();
        let options = DirOptions { durability: Durability::None, read_only: false };
        let store = DirStore::open(dir.path(), options, clock.clone(), Arc::new(Entropy::new(3))).unwrap();
        Self::of(Arc::new(store), clock, Some(Arc::new(dir)))
    }

    /// Returns the buckets `one-bucket` and `two-bucket` as directories. A mount needs `joins_buckets`.
    pub(crate) async fn several() -> Self {
        let clock = Arc::new(TestClock::default());
        let limits = MemoryLimits { part_bytes_min: 1, ..MemoryLimits::default() };
        let buckets = MemoryBuckets::with_limits(clock.clone(), limits);
        for name in ["one-bucket", "two-bucket"] {
            buckets.create(name).await.unwrap();
        }
        let bucket = Self::of(Arc::new(JoinedStore::new(Arc::new(buckets), None)), clock, None);
        Self { engine: Some(Arc::new(MemoryEngine::default())), ..bucket }
    }

    fn of(store: Arc<dyn ObjectStore>, clock: Arc<TestClock>, dir: Option<Arc<TempDir>>) -> Self {
        Self {
            store,
            clock,
            trace: Trace::new(),
            faults: Faults::new(),
            late: DelayedAnswers::default(),
            engine: None,
            _dir: dir,
        }
    }

    /// Returns volumes named by inode, one per mapping.
    pub(crate) async fn by_inode_each() -> [Self; 2] {
        [Self::by_inode(Mapping::Whole).await, Self::by_inode(CHUNKED).await]
    }

    /// Returns a volume named by inode, with metadata that outlives its mounts.
    pub(crate) async fn by_inode(mapping: Mapping) -> Self {
        Self::by_inode_on(mapping, Arc::new(MemoryEngine::default())).await
    }

    /// Like `by_inode`, with the metadata in this engine.
    pub(crate) async fn by_inode_on(mapping: Mapping, engine: Arc<dyn Engine>) -> Self {
        let bucket = Self { engine: Some(engine), ..Self::in_memory() };
        let record = VolumeRecord::new(mapping, Naming::Inode, 7, bucket.clock.now()).unwrap();
        record.write(bucket.store(), b"").await.unwrap();
        bucket
    }

    /// Returns a volume named by path, with metadata that outlives its mounts.
    pub(crate) fn with_metadata() -> Self {
        Self::with_metadata_on(Arc::new(MemoryEngine::default()))
    }

    /// Like `with_metadata`, with the metadata in this engine.
    pub(crate) fn with_metadata_on(engine: Arc<dyn Engine>) -> Self {
        Self { engine: Some(engine), ..Self::in_memory() }
    }

    /// Returns the same bucket for a machine without metadata of it.
    pub(crate) fn elsewhere(&self) -> Self {
        Self { engine: None, ..self.clone() }
    }

    /// Mounts the bucket; without a shared engine the mount learns everything from the bucket.
    pub(crate) async fn mount(&self, change: impl FnOnce(&mut Config)) -> World {
        let cache = TempDir::new().unwrap();
        let mut config = Config { uid: 7, gid: 8, ..Config::new(cache.path().to_owned()) };
        change(&mut config);
        let late = Wrapped::new(self.store.clone(), self.late.clone());
        let mut store: Arc<dyn ObjectStore> =
            Arc::new(Traced::new(Faulty::new(late, self.faults.clone()), self.trace.clone()));
        let entropy = Arc::new(Entropy::new(self.clock.now().0 as u64));
        let record = match config.joins_buckets {
            // Several buckets have no common place for a record.
            true => VolumeRecord::new(Mapping::Whole, Naming::FilePath, 7, self.clock.now()).ok(),
            false => VolumeRecord::read(self.store.as_ref(), &config.prefix).await.unwrap(),
        };
        let keys_are_used_once = record.as_ref().is_some_and(|record| record.naming == Naming::Inode);
        let log = config.write_back.then(|| {
            self.log(&config.cache_dir.join("log"), store.clone(), entropy.clone(), keys_are_used_once)
        });
        if let Some(log) = &log {
            store = log.clone();
        }
        let parts = Dependencies {
            store,
            clock: self.clock.clone(),
            entropy,
            engine: self.engine.clone().unwrap_or_else(|| Arc::new(MemoryEngine::default())),
            record,
        };
        let fs = Filesystem::mount(parts, config.clone()).unwrap();
        if let Some(log) = &log {
            fs.moves().connect_writeback(log);
        }
        World { fs, bucket: self.clone(), log, config, cache }
    }

    /// Opens a log as `tenon mount --writeback` does, but without delaying uploads.
    fn log(
        &self,
        dir: &Path,
        store: Arc<dyn ObjectStore>,
        entropy: Arc<Entropy>,
        keys_are_used_once: bool,
    ) -> Arc<Writeback> {
        let options = WritebackOptions {
            limit_bytes: 1 << 30,
            limit_changes: 1 << 20,
            patience: Duration::from_secs(60),
            delay: Duration::ZERO,
            checks_at_once: !keys_are_used_once,
            shared: Arc::new(move |key| !keys_are_used_once && KeySpace::default().is_shared(key)),
            keys_are_used_once,
            lost: Arc::new(|key, unique| KeySpace::default().lost_key(key, unique).unwrap()),
            early_bytes: 1,
            memory_bytes: 1 << 20,
        };
        let log = Writeback::open(dir, store, options, self.clock.clone(), entropy).unwrap();
        log.await_conflict_callbacks();
        log
    }

    /// Returns the store itself, without wrappers.
    pub(crate) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    /// Stores an object as another client.
    pub(crate) async fn put(&self, key: impl AsRef<[u8]>, body: impl AsRef<[u8]>) {
        self.put_with(key, body, &[]).await;
    }

    /// Stores an object with user metadata as another client.
    pub(crate) async fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        body: impl AsRef<[u8]>,
        user: &[(&str, &str)],
    ) {
        let user = user.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let options =
            PutOptions { attributes: Attributes { user, ..Attributes::default() }, ..PutOptions::default() };
        let body = Payload::from(Bytes::copy_from_slice(body.as_ref()));
        self.store.put(&key_of(key), body, options).await.unwrap();
    }

    /// Deletes an object as another client.
    pub(crate) async fn delete(&self, key: impl AsRef<[u8]>) {
        self.store.delete(&key_of(key), Precondition::None).await.unwrap();
    }

    pub(crate) async fn head(&self, key: impl AsRef<[u8]>) -> Option<ObjectMeta> {
        match self.store.head(&key_of(key)).await {
            Ok(meta) => Some(meta),
            Err(StoreError::NotFound(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns a header of the user metadata.
    pub(crate) async fn header(&self, key: impl AsRef<[u8]>, name: &str) -> Option<String> {
        self.head(key).await?.attributes.user.get(name).cloned()
    }

    /// Returns an object's bytes.
    pub(crate) async fn object(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        match self.store.get(&key_of(key), GetOptions::default()).await {
            Ok(object) => Some(object.body.try_collect::<Vec<_>>().await.unwrap().concat()),
            Err(StoreError::NotFound(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns every key, including Tenon's own objects except `.tenon/volume`.
    pub(crate) async fn keys(&self) -> Vec<String> {
        self.keys_below("").await
    }

    /// Like `keys`, below a prefix.
    pub(crate) async fn keys_below(&self, prefix: &str) -> Vec<String> {
        let prefix = Bytes::copy_from_slice(prefix.as_bytes());
        let request = ListRequest { prefix, limit: 1000, ..ListRequest::default() };
        let entries = Pages::new(self.store.as_ref(), request).collect().await.unwrap();
        let keys = entries.iter().map(|entry| String::from_utf8_lossy(entry.text()).into_owned());
        keys.filter(|key| !key.ends_with(".tenon/volume")).collect()
    }
}

impl World {
    /// Mounts an empty bucket.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Bucket::in_memory().mount(change).await
    }

    /// Mounts the same bucket again with the same settings, without cached state.
    pub(crate) async fn remount(&self) -> Self {
        self.mount_of(&self.bucket).await
    }

    /// Mounts the bucket a second time while this mount goes on. By path the new mount has tables of its own: RocksDB allows
    /// one mount per directory, and in shared tables the observations of the newer mount would outrank those of this one.
    pub(crate) async fn mount_beside(&self) -> Self {
        let record = VolumeRecord::read(self.bucket.store(), &self.config.prefix).await.unwrap();
        match record.map_or(Naming::FilePath, |record| record.naming) {
            Naming::FilePath => self.mount_of(&self.bucket.elsewhere()).await,
            Naming::Inode => self.remount().await,
        }
    }

    async fn mount_of(&self, bucket: &Bucket) -> Self {
        let config = self.config.clone();
        let here = |fresh: &Config| (fresh.cache_dir.clone(), fresh.moves_path.clone());
        let change = |fresh: &mut Config| {
            let (cache_dir, moves_path) = here(fresh);
            *fresh = Config { cache_dir, moves_path, ..config };
        };
        bucket.mount(change).await
    }

    /// Removes the cache directory, so that no local file can be created.
    pub(crate) fn remove_cache_dir(&self) {
        std::fs::remove_dir_all(self.cache.path()).unwrap();
    }

    /// Lets the cached state expire.
    pub(crate) fn expire(&self) {
        self.bucket.clock.advance(self.config.metadata_ttl);
    }

    /// Runs an action and returns its requests.
    pub(crate) async fn counting<T>(&self, action: impl Future<Output = T>) -> (T, RequestCounts) {
        let before = self.bucket.trace.counts();
        let done = Box::pin(action).await;
        (done, self.bucket.trace.counts().since(&before))
    }

    /// Runs an action that must succeed and returns its requests as text, such as `Get 1, List 1`.
    pub(crate) async fn requests<T>(&self, action: impl Future<Output = Result<T>>) -> String {
        let (done, counts) = self.counting(Box::pin(action)).await;
        done.unwrap();
        counts.to_string()
    }

    pub(crate) async fn stat(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        let mut attr = self.fs.getattr(Ino::ROOT).await?;
        // Collected first, because a stream over the closure would not be `Send`.
        let names: Vec<&[u8]> =
            path.as_ref().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        for name in names {
            attr = self.fs.lookup(attr.ino, name).await?;
        }
        Ok(attr)
    }

    pub(crate) async fn ino(&self, path: impl AsRef<[u8]>) -> Result<Ino> {
        Ok(self.stat(path).await?.ino)
    }

    pub(crate) async fn create(&self, path: impl AsRef<[u8]>) -> Result<Handle> {
        let (dir, name) = self.parent(path.as_ref()).await?;
        let (_, opened) = self.fs.create(CALLER, dir, &name, 0o640, libc::O_RDWR | libc::O_CREAT).await?;
        Ok(opened.handle)
    }

    pub(crate) async fn open(&self, path: impl AsRef<[u8]>, flags: i32) -> Result<Opened> {
        self.fs.open(self.ino(path).await?, flags).await
    }

    pub(crate) async fn open_handle(&self, path: impl AsRef<[u8]>, flags: i32) -> Result<Handle> {
        Ok(self.open(path, flags).await?.handle)
    }

    /// Closes the last descriptor as the kernel does: flush, then release.
    pub(crate) async fn close(&self, handle: Handle) -> Result<()> {
        let flushed = self.fs.flush(handle).await;
        flushed.and(self.fs.release(handle).await)
    }

    /// Creates or overwrites a file, in writes of 1 MiB.
    pub(crate) async fn write_file(&self, path: impl AsRef<[u8]>, body: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let handle = match self.create(path).await {
            Err(error) if error.errno() == libc::EEXIST => {
                self.open_handle(path, libc::O_WRONLY | libc::O_TRUNC).await?
            }
            other => other?,
        };
        let written = self.write_all(handle, body.as_ref()).await;
        written.and(self.close(handle).await)
    }

    pub(crate) async fn write_all(&self, handle: Handle, body: &[u8]) -> Result<()> {
        for (index, piece) in body.chunks(MIB).enumerate() {
            self.fs.write(handle, (index * MIB) as u64, piece).await?;
        }
        Ok(())
    }

    pub(crate) async fn read_file(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let handle = self.open_handle(path, libc::O_RDONLY).await?;
        let body = self.read_all(handle).await;
        self.close(handle).await?;
        body
    }

    /// Reads to the end sequentially, in reads of 128 KiB.
    pub(crate) async fn read_all(&self, handle: Handle) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let piece = self.fs.read(handle, body.len() as u64, 128 << 10).await?;
            if piece.is_empty() {
                return Ok(body);
            }
            body.extend_from_slice(&piece);
        }
    }

    pub(crate) async fn mkdir(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        let (dir, name) = self.parent(path.as_ref()).await?;
        self.fs.mkdir(CALLER, dir, &name, 0o750).await
    }

    pub(crate) async fn symlink(&self, path: impl AsRef<[u8]>, target: &[u8]) -> Result<Attr> {
        let (dir, name) = self.parent(path.as_ref()).await?;
        self.fs.symlink(CALLER, dir, &name, target).await
    }

    pub(crate) async fn mknod(&self, path: impl AsRef<[u8]>, kind: Kind) -> Result<Attr> {
        let (dir, name) = self.parent(path.as_ref()).await?;
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let rdev = if is_device { 0x103 } else { 0 };
        self.fs.mknod(CALLER, dir, &name, kind, 0o600, rdev).await
    }

    /// Creates a further name `other` of the file `path`.
    pub(crate) async fn link(&self, path: impl AsRef<[u8]>, other: impl AsRef<[u8]>) -> Result<Attr> {
        let (dir, name) = self.parent(other.as_ref()).await?;
        self.fs.link(self.ino(path).await?, dir, &name).await
    }

    pub(crate) async fn unlink(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (dir, name) = self.parent(path.as_ref()).await?;
        self.fs.unlink(dir, &name).await?;
        // The object of a file with other names moves to one of them.
        self.fs.moves().wait_until_at_rest().await;
        Ok(())
    }

    pub(crate) async fn rmdir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (dir, name) = self.parent(path.as_ref()).await?;
        self.fs.rmdir(dir, &name).await
    }

    /// Renames, and waits until the objects have moved.
    pub(crate) async fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        self.rename_with(from, to, 0).await
    }

    pub(crate) async fn rename_with(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        flags: u32,
    ) -> Result<()> {
        self.rename_at_once(from, to, flags).await?;
        self.fs.moves().wait_until_at_rest().await;
        Ok(())
    }

    /// Renames without waiting for the objects.
    pub(crate) async fn rename_at_once(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        flags: u32,
    ) -> Result<()> {
        let (from, to) = (self.parent(from.as_ref()).await?, self.parent(to.as_ref()).await?);
        self.fs.rename((from.0, &from.1), (to.0, &to.1), flags).await
    }

    pub(crate) async fn chmod(&self, path: impl AsRef<[u8]>, mode: u16) -> Result<Attr> {
        self.set(path, Changes { mode: Some(mode), ..Changes::default() }).await
    }

    pub(crate) async fn truncate(&self, path: impl AsRef<[u8]>, size: u64) -> Result<Attr> {
        self.set(path, Changes { size_bytes: Some(size), ..Changes::default() }).await
    }

    pub(crate) async fn set(&self, path: impl AsRef<[u8]>, changes: Changes) -> Result<Attr> {
        let ino = self.ino(path).await?;
        self.fs.setattr(CALLER, ino, changes, None).await
    }

    /// Returns the names in a directory in the order of `readdir`, without dots, read in small batches.
    pub(crate) async fn names(&self, path: impl AsRef<[u8]>) -> Result<Vec<String>> {
        let listed = self.list(path, false).await?;
        Ok(listed.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect())
    }

    pub(crate) async fn list(&self, path: impl AsRef<[u8]>, plus: bool) -> Result<Vec<DirectoryEntry>> {
        let handle = self.fs.opendir(self.ino(path).await?).await?;
        let mut listed = Vec::<DirectoryEntry>::new();
        loop {
            let cookie = listed.last().map_or(0, |entry| entry.cookie);
            let batch = self.fs.readdir(handle, cookie, 40, plus).await?;
            if batch.is_empty() {
                break;
            }
            listed.extend(batch);
        }
        self.fs.releasedir(handle);
        listed.retain(|entry| *entry.name != *b"." && *entry.name != *b"..");
        Ok(listed)
    }

    /// Waits until everything is in the bucket.
    pub(crate) async fn settle(&self) {
        self.fs.sync().await.unwrap();
        self.fs.moves().wait_until_complete().await;
        if let Some(log) = &self.log {
            log.drained().await;
        }
    }

    /// Asserts that the tables are consistent, and that a mount without cached state finds the same names and bytes.
    pub(crate) async fn assert_healthy(&self) {
        self.is_healthy().await.unwrap();
    }

    /// Like `assert_healthy`, but returns a description of the problem.
    pub(crate) async fn is_healthy(&self) -> Result<(), String> {
        self.settle().await;
        let violations = self.fs.check().map_err(|error| error.to_string())?;
        if !violations.is_empty() {
            return Err(violations.join(", "));
        }
        let (here, there) = (self.tree().await, self.remount().await.tree().await);
        if here == there { Ok(()) } else { Err("this mount and a new one show different trees".into()) }
    }

    /// Returns every path with its kind and bytes.
    pub(crate) async fn tree(&self) -> Vec<(String, Kind, Vec<u8>)> {
        let mut found = Vec::new();
        let mut waiting = vec![Vec::<u8>::new()];
        while let Some(dir) = waiting.pop() {
            for entry in self.list(&dir, true).await.unwrap() {
                let path = [dir.as_slice(), b"/", &entry.name].concat();
                let kind = entry.attr.unwrap().kind;
                let body = match kind {
                    Kind::File => self.read_file(&path).await.unwrap(),
                    Kind::Symlink => self.fs.readlink(entry.ino).await.unwrap().to_vec(),
                    _ => Vec::new(),
                };
                found.push((String::from_utf8_lossy(&path).into_owned(), kind, body));
                if kind == Kind::Directory {
                    waiting.push(path);
                }
            }
        }
        found.sort_by(|a: &(String, _, _), b| a.0.cmp(&b.0));
        found
    }

    async fn parent(&self, path: &[u8]) -> Result<(Ino, Vec<u8>)> {
        let at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        Ok((self.ino(&path[..at]).await?, path[at..].to_vec()))
    }
}

/// Runs a program on a thread of its own.
pub(crate) fn program<T: Send + 'static, F: Future<Output = T>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::task::spawn_blocking(move || tokio::runtime::Handle::current().block_on(work()))
}

/// Asserts that a future cannot complete before something else happens. Needs a test whose clock is paused: time then passes only while every
/// task waits.
pub(crate) async fn assert_waits<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) {
    let waited = tokio::time::timeout(Duration::from_millis(1), future).await;
    assert!(waited.is_err(), "the call did not wait");
}

/// Returns the errno of an operation that must fail.
pub(crate) fn errno<T: std::fmt::Debug>(outcome: Result<T>) -> i32 {
    outcome.unwrap_err().errno()
}

/// The smallest chunk size.
pub(crate) const CHUNKED: Mapping = Mapping::Chunked { bytes: MIB as u64 };

/// Returns bytes in which each group of 8 differs from its neighbours.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let words = (0..len.div_ceil(8) as u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    words.for_each(|word| bytes.extend_from_slice(&word));
    bytes.truncate(len);
    bytes
}

fn key_of(key: impl AsRef<[u8]>) -> ObjectKey {
    ObjectKey::try_from(key.as_ref()).unwrap()
}
