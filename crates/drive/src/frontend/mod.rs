//! The front end: the drive for concurrent async callers. It decides which callers wait, and where blocking calls run.
//!
//! Owns the key locks, the commit queue, and maintenance (checkpoints, compaction, cleaning), which the owner of the drive runs by
//! [`Drive::run_maintenance`]. On a single-threaded runtime everything runs in place and in the order of the calls, so that a simulated
//! world depends on its seed only.

mod committer;
mod info;
mod key_locks;
mod maintenance;
mod membership;
mod read;
mod read_cache;
mod run_writer;
mod scrub;
mod verified_reader;
mod write;

pub use info::{Info, ZoneUse};
pub(crate) use key_locks::{KeyGuard, KeyLocks};
pub(crate) use read::Access;
pub(crate) use run_writer::RunWriter;
pub use scrub::Scrubbed;
pub(crate) use write::Stored;

use crate::device::{Array, BlockDevice, Io};
use crate::engine::{Area, Engine, FormatOptions, InlinePut, OpenOptions, Prepared};
use crate::error::{Error, Result};
use crate::format::{BucketId, IndexKey, ObjectRecord, decode_record};
use crate::policy::Purpose;
use crate::space::Pins;
use bytes::Bytes;
use committer::Committer;
use read_cache::{CachedRange, ReadCache};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use store::{Clock, Entropy};
use tokio::sync::{Notify, Semaphore};
use verified_reader::VerifiedReader;

/// An open drive. Clones share it.
#[derive(Clone)]
pub struct Drive(pub(crate) Arc<Frontend>);

/// The front end of an open drive.
pub(crate) struct Frontend {
    pub(crate) engine: Arc<Engine>,
    /// The device, for writing the data of runs. Commits go through the engine.
    io: Io,
    reader: VerifiedReader,
    /// The read cache; `None` if it is disabled.
    cache: Option<Arc<ReadCache>>,
    pub(crate) locks: KeyLocks,
    pub(crate) clock: Arc<dyn Clock>,
    committer: Committer,
    /// Notified when maintenance may be due.
    maintenance_due: Notify,
    /// Held while zones are cleaned.
    cleaning_lock: tokio::sync::Mutex<()>,
    /// Held while a checkpoint is made, so that tasks wait for it without blocking a thread.
    checkpoint_lock: tokio::sync::Mutex<()>,
    /// Held while the drive is scrubbed; the value is the number of blocks repaired before the last scrub ended.
    scrub_lock: tokio::sync::Mutex<u64>,
    /// Permits for buffers of writers that wait for bytes from clients.
    buffer_permits: Arc<Semaphore>,
}

impl Drive {
    /// Formats a device as a drive; its previous contents are lost. Blocks.
    pub fn format(device: &Arc<dyn BlockDevice>, options: FormatOptions, entropy: &Entropy) -> Result<()> {
        Engine::format(device, options, entropy)
    }

    /// Opens a drive. Blocks while the log since the last checkpoint is read: usually up to 512 MiB, nothing after
    /// [`close`](Self::close).
    ///
    /// Errors: [`Error::Foreign`] if the device holds no drive, [`Error::Unsuitable`] if the drive has another format
    /// version or does not fit the device, and errors for which [`Error::is_damage`] is true if the drive is damaged
    /// or cannot be read.
    pub fn open(io: impl Into<Io>, options: OpenOptions, clock: Arc<dyn Clock>) -> Result<Self> {
        let io = io.into();
        let engine = Arc::new(Engine::open(io.device(), options)?);
        let reader = VerifiedReader::new(io.clone(), engine.geometry, engine.buffers.clone());
        let cache = ReadCache::new(options.read_cache_bytes).map(Arc::new);
        let (committer, locks) = (Committer::default(), KeyLocks::default());
        let (maintenance_due, buffer_permits) =
            (Notify::new(), Arc::new(Semaphore::new(run_writer::BUFFER_PERMITS)));
        let [cleaning_lock, checkpoint_lock] = [(); 2].map(tokio::sync::Mutex::new);
        let scrub_lock = tokio::sync::Mutex::default();
        Ok(Self(Arc::new(Frontend {
            engine,
            io,
            reader,
            cache,
            locks,
            clock,
            committer,
            maintenance_due,
            cleaning_lock,
            checkpoint_lock,
            scrub_lock,
            buffer_permits,
        })))
    }
}

impl Drive {
    /// Returns the array below the drive, if the drive has several devices.
    pub fn array(&self) -> Option<&Arc<Array>> {
        match &self.0.io {
            Io::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Returns the areas that superblocks, index and log use, ordered by position. The rest is free, or kept by writes
    /// and reads in progress. Blocks while the whole index is read, and stops commits and checkpoints meanwhile.
    pub fn layout(&self) -> Result<Vec<Area>> {
        self.0.engine.layout()
    }

    /// Returns the losses of an opening with [`OpenOptions::before_damage`], one line each; none if the drive is intact.
    pub fn losses(&self) -> &[String] {
        &self.0.engine.losses
    }
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive").field("engine", &self.0.engine).finish_non_exhaustive()
    }
}

impl fmt::Debug for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frontend").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Frontend {
    /// Runs work that blocks on the device, on a thread for blocking calls.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Engine>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let engine = self.engine.clone();
        let done = store::blocking(move || Ok(work(&engine))).await;
        // On a single-threaded runtime the work ran in place. Yielding lets other tasks run here, as they do in production.
        tokio::task::yield_now().await;
        done.unwrap_or_else(|error| Err(Error::aborted(&error)))
    }

    /// Waits while the log or the memtable is nearly full, then locks a key.
    pub(crate) async fn lock_key(&self, bucket: BucketId, key: &[u8]) -> KeyGuard {
        self.wait_for_room().await;
        self.locks.lock_key(bucket, key).await
    }

    /// Waits while the log or the memtable is nearly full, then locks keys of several buckets.
    pub(crate) async fn lock_keys(
        &self,
        keys: impl Iterator<Item = (BucketId, &[u8])> + Clone + Send,
    ) -> Vec<KeyGuard> {
        self.wait_for_room().await;
        self.locks.lock_keys(keys).await
    }

    /// Waits while the log or the memtable is nearly full, then locks two keys of a bucket.
    pub(crate) async fn lock_two_keys(&self, bucket: BucketId, keys: [&[u8]; 2]) -> [KeyGuard; 2] {
        self.wait_for_room().await;
        self.locks.lock_two_keys(bucket, keys).await
    }

    /// Makes changes durable and visible. `locks` are the locks of the changed keys.
    pub(crate) async fn commit(&self, mut prepared: Prepared, locks: Vec<KeyGuard>) -> Result<()> {
        prepared.check_lengths()?;
        let inline_writes = match prepared.purpose {
            Purpose::Grows => prepared.inline_puts.iter().map(InlinePut::write_and_bytes).collect(),
            Purpose::Moves | Purpose::Frees => Vec::new(),
        };
        let rekeys = std::mem::take(&mut prepared.rekeys);
        let dropped = std::mem::take(&mut prepared.dropped);
        let committed = self.committer.commit(&self.engine, prepared, locks).await;
        if matches!(committed, Err(Error::IndexUnwritable(_))) {
            // Wakes maintenance, which retries the checkpoint.
            self.maintenance_due.notify_one();
        }
        committed?;
        if let Some(cache) = &self.cache {
            for (write, bytes) in inline_writes {
                cache.insert(CachedRange::inline(write, bytes.len() as u32), bytes);
            }
            rekeys.iter().for_each(|rekey| cache.rekey(rekey));
            dropped.iter().for_each(|(write, body)| cache.remove(*write, body));
        }
        self.notify_maintenance();
        Ok(())
    }

    /// Returns the value of an index entry; `None` if there is no such entry.
    pub(crate) async fn entry(&self, key: &IndexKey) -> Result<Option<Bytes>> {
        if let Some(known) = self.engine.index.get_in_memory(&key.0) {
            return Ok(known);
        }
        let key = key.0.clone();
        self.run_blocking(move |engine| engine.index.get(&key)).await
    }

    /// Returns the first entries with a prefix, at most `limit`.
    pub(crate) async fn entries(&self, prefix: IndexKey, limit: usize) -> Result<Vec<(IndexKey, Bytes)>> {
        self.entries_from(Bound::Included(prefix.0.clone()), prefix, limit).await
    }

    /// Returns the first entries with a prefix from a key on, at most `limit`.
    pub(crate) async fn entries_from(
        &self,
        from: Bound<Vec<u8>>,
        prefix: IndexKey,
        limit: usize,
    ) -> Result<Vec<(IndexKey, Bytes)>> {
        let gather = move |engine: &Arc<Engine>| {
            let mut scan = engine.index.scan(from.as_ref().map(Vec::as_slice), &prefix.0)?;
            let mut found = Vec::new();
            while found.len() < limit
                && let Some((key, value)) = scan.next()?
            {
                found.push((IndexKey(key.to_vec()), value.clone()));
            }
            Ok(found)
        };
        self.run_blocking(gather).await
    }

    /// Returns the record of an object or a version; `None` if there is no such entry.
    pub(crate) async fn record(&self, key: &IndexKey) -> Result<Option<ObjectRecord>> {
        self.entry(key).await?.map(|value| decode_record(&key.0, &value)).transpose()
    }

    /// Returns the record of an object or a part, and pins on its bytes: they are not overwritten while the pins exist.
    pub(crate) async fn pinned_record(&self, key: &IndexKey) -> Result<Option<(ObjectRecord, Pins)>> {
        let mut found = self.entry(key).await?;
        while let Some(value) = found {
            let record = ObjectRecord::of_entry(&key.0, &value);
            let record = record.ok_or_else(|| Error::damaged_entry("an object's record", &key.0))?;
            let mut pins = Pins::new(&self.engine.space);
            pins.pin_body(&record.body);
            // The blocks may have been reused before they were pinned. If the entry is still the same now, they were
            // not.
            found = self.entry(key).await?;
            if found.as_ref() == Some(&value) {
                return Ok(Some((record, pins)));
            }
        }
        Ok(None)
    }

    /// Returns the record of an object or a version, and its cached bytes or pins on them; `None` if there is no such
    /// entry.
    pub(crate) async fn record_and_access(&self, key: &IndexKey) -> Result<Option<(ObjectRecord, Access)>> {
        let Some(record) = self.record(key).await? else { return Ok(None) };
        if let Some(bytes) = self.cached(record.write, &record.body) {
            return Ok(Some((record, Access::Cached(bytes))));
        }
        let pinned = self.pinned_record(key).await?;
        Ok(pinned.map(|(record, pins)| (record, Access::Pinned(pins))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::FileDevice;
    use store::Buckets as _;

    fn drive(folder: &tempfile::TempDir) -> Drive {
        let file = FileDevice::create(&folder.path().join("drive"), 32 << 20).unwrap();
        let device: Arc<dyn BlockDevice> = Arc::new(file);
        Drive::format(&device, FormatOptions::default(), &Entropy::new(1)).unwrap();
        Drive::open(device, OpenOptions::default(), Arc::new(store::SystemClock)).unwrap()
    }

    /// A call whose task had panicked said that the drive accepts no writes and must be opened again, though nothing had failed.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_aborted_call_does_not_say_that_the_drive_failed() {
        let folder = tempfile::tempdir().unwrap();
        let drive = drive(&folder);
        let aborted = drive.0.run_blocking(|_| -> Result<()> { panic!("a bug") }).await.unwrap_err();
        assert!(matches!(&aborted, Error::Aborted(_)), "{aborted}");
        drive.create("photos").await.unwrap();
    }

    /// Damage of a record was reported at byte 0 of the device, whatever the record.
    #[tokio::test]
    async fn damage_of_an_entry_names_the_entry() {
        let folder = tempfile::tempdir().unwrap();
        let drive = drive(&folder);
        drive.0.engine.index.insert(IndexKey::bucket("photos").0, vec![0xff]);
        let damaged = drive.open("photos").await.unwrap_err().to_string();
        assert!(damaged.contains("a bucket's record in the index, at the entry 'Bphotos'"), "{damaged}");
        assert!(!damaged.contains("byte"), "{damaged}");
    }
}
