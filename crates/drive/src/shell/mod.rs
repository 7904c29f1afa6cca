//! The front end: the drive for concurrent async callers. It decides which callers wait, and where blocking calls run.
//!
//! Owns the key locks, the commit queue, and maintenance (checkpoints, compaction, cleaning), which the owner of the drive runs by
//! [`Drive::keep_up`]. On a single-threaded runtime everything runs in place and in the order of the calls, so that a simulated
//! world depends on its seed only.

mod committer;
mod info;
mod key_locks;
mod maintenance;
mod read;
mod read_cache;
mod reconstruct;
mod run_writer;
mod scrub;
mod write;

pub use info::{Info, ZoneUse};
pub(crate) use key_locks::{Held, KeyLocks};
pub(crate) use read::Access;
pub(crate) use run_writer::RunWriter;
pub use scrub::{Pace, Scrubbed};
pub(crate) use write::Stored;

use crate::device::{Array, BlockDevice, Buffer, Io};
use crate::error::{Error, Result};
use crate::format::{BucketId, IndexKey, ObjectRecord};
use crate::machine::{FormatOptions, Machine, OpenOptions, Prepared, Purpose, Small};
use crate::space::Pins;
use bytes::Bytes;
use committer::Committer;
use read_cache::{ReadCache, Stretch};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use store::{Clock, Entropy};
use tokio::sync::{Notify, Semaphore};

/// An open drive. Clones share it.
#[derive(Clone)]
pub struct Drive(pub(crate) Arc<Shell>);

pub(crate) struct Shell {
    pub(crate) machine: Arc<Machine>,
    /// For reading and writing data. Commits go through the engine.
    io: Io,
    /// `None` if disabled.
    cache: Option<Arc<ReadCache>>,
    pub(crate) locks: KeyLocks,
    pub(crate) clock: Arc<dyn Clock>,
    committer: Committer,
    /// Notified when maintenance may be due.
    grown: Notify,
    /// Held while zones are cleaned.
    keeping: tokio::sync::Mutex<()>,
    /// Held while a checkpoint is made, so that tasks wait for it without blocking a thread.
    checkpointing: tokio::sync::Mutex<()>,
    /// Held while the drive is scrubbed; the value is the number of blocks repaired before the last scrub ended.
    scrubbing: tokio::sync::Mutex<u64>,
    /// Permits for buffers of writers that wait for bytes from clients.
    places: Arc<Semaphore>,
}

impl Drive {
    /// Formats a device as a drive; its previous contents are lost. Blocks.
    pub fn format(device: &Arc<dyn BlockDevice>, options: FormatOptions, entropy: &Entropy) -> Result<()> {
        Machine::format(device, options, entropy)
    }

    /// Opens a drive. Blocks while the log is read: up to 512 MiB, nothing after [`close`](Self::close).
    ///
    /// Errors: [`Error::Foreign`] if the device holds no drive, [`Error::Damaged`] if the drive is damaged.
    pub fn open(io: impl Into<Io>, options: OpenOptions, clock: Arc<dyn Clock>) -> Result<Self> {
        let io = io.into();
        let machine = Arc::new(Machine::open(io.device(), options)?);
        let cache = ReadCache::new(options.read_cache_bytes).map(Arc::new);
        let (committer, locks) = (Committer::default(), KeyLocks::default());
        let (grown, places) = (Notify::new(), Arc::new(Semaphore::new(run_writer::PLACES)));
        let [keeping, checkpointing] = [(); 2].map(tokio::sync::Mutex::new);
        let scrubbing = tokio::sync::Mutex::default();
        Ok(Self(Arc::new(Shell {
            machine,
            io,
            cache,
            locks,
            clock,
            committer,
            grown,
            keeping,
            checkpointing,
            scrubbing,
            places,
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

    /// Returns the losses of an opening with [`OpenOptions::before_damage`], one line each; none if the drive is intact.
    pub fn losses(&self) -> &[String] {
        &self.0.machine.losses
    }
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive").field("machine", &self.0.machine).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl Shell {
    /// Runs work that blocks on the device, on a thread for blocking calls.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Machine>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let machine = self.machine.clone();
        let done = store::blocking(move || Ok(work(&machine))).await;
        // On a single-threaded runtime the work ran in place. Yielding lets other tasks run here, as they do in production.
        tokio::task::yield_now().await;
        done.unwrap_or_else(|error| Err(Error::Failed(format!("a call was aborted: {error}"))))
    }

    /// Reads blocks from a position on.
    async fn read_blocks(&self, at: u64, len_bytes: u64) -> Result<Buffer> {
        let buffer = self.machine.buffers.take(len_bytes as usize);
        self.io.read(at, buffer).await.map_err(Error::device(at))
    }

    /// Waits until the log has room, then locks a key.
    pub(crate) async fn hold(&self, bucket: BucketId, key: &[u8]) -> Held {
        self.relieve().await;
        self.locks.hold(bucket, key).await
    }

    /// Waits until the log has room, then locks keys of several buckets.
    pub(crate) async fn hold_all(
        &self,
        keys: impl Iterator<Item = (BucketId, &[u8])> + Clone + Send,
    ) -> Vec<Held> {
        self.relieve().await;
        self.locks.hold_all(keys).await
    }

    /// Waits until the log has room, then locks two keys of a bucket.
    pub(crate) async fn hold_both(&self, bucket: BucketId, keys: [&[u8]; 2]) -> [Held; 2] {
        self.relieve().await;
        self.locks.hold_both(bucket, keys).await
    }

    /// Makes changes durable and visible. `locks` are the locks of the changed keys.
    pub(crate) async fn commit(&self, mut prepared: Prepared, locks: Vec<Held>) -> Result<()> {
        prepared.check_lengths()?;
        let small = match prepared.purpose {
            Purpose::Grows => prepared.small.iter().map(Small::stored).collect(),
            Purpose::Moves | Purpose::Frees => Vec::new(),
        };
        let named = std::mem::take(&mut prepared.named);
        let gone = std::mem::take(&mut prepared.gone);
        let committed = self.committer.commit(&self.machine, prepared, locks).await;
        if matches!(committed, Err(Error::Stuck(_))) {
            // Wakes maintenance, which retries the checkpoint.
            self.grown.notify_one();
        }
        committed?;
        if let Some(cache) = &self.cache {
            for (write, bytes) in small {
                cache.insert(Stretch::piece(write, bytes.len() as u32), bytes);
            }
            named.iter().for_each(|named| cache.rename(named));
            gone.iter().for_each(|(write, body)| cache.forget(*write, body));
        }
        if self.machine.wants_checkpoint() || self.wants_cleaning() {
            self.grown.notify_one();
        }
        Ok(())
    }

    /// Returns the value of an index entry.
    pub(crate) async fn entry(&self, key: &IndexKey) -> Result<Option<Bytes>> {
        if let Some(known) = self.machine.index.get_in_memory(&key.0) {
            return Ok(known);
        }
        let key = key.0.clone();
        self.blocking(move |machine| machine.index.get(&key)).await
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
        let gather = move |machine: &Arc<Machine>| {
            let mut scan = machine.index.scan(from.as_ref().map(Vec::as_slice), &prefix.0)?;
            let mut found = Vec::new();
            while found.len() < limit
                && let Some((key, value)) = scan.next()?
            {
                found.push((IndexKey(key.to_vec()), value.clone()));
            }
            Ok(found)
        };
        self.blocking(gather).await
    }

    /// Returns an object's record.
    pub(crate) async fn record(&self, key: &IndexKey) -> Result<Option<ObjectRecord>> {
        self.entry(key).await?.map(|value| decoded(&value)).transpose()
    }

    /// Returns the record of an object or a part, and pins on its bytes: they are not overwritten while the pins exist.
    pub(crate) async fn held(&self, key: &IndexKey) -> Result<Option<(ObjectRecord, Pins)>> {
        let mut found = self.entry(key).await?;
        while let Some(value) = found {
            let record = ObjectRecord::of_entry(&key.0, &value).ok_or_else(damaged_record)?;
            let mut pins = Pins::new(&self.machine.space);
            pins.body(&record.body);
            // Before they were pinned the blocks may have been reused. If the entry is unchanged now, they were not.
            found = self.entry(key).await?;
            if found.as_ref() == Some(&value) {
                return Ok(Some((record, pins)));
            }
        }
        Ok(None)
    }

    /// Returns an object's record, and its cached bytes or pins on them.
    pub(crate) async fn accessed(&self, key: &IndexKey) -> Result<Option<(ObjectRecord, Access)>> {
        let Some(record) = self.record(key).await? else { return Ok(None) };
        if let Some(bytes) = self.kept(record.write, &record.body) {
            return Ok(Some((record, Access::Kept(bytes))));
        }
        let held = self.held(key).await?;
        Ok(held.map(|(record, pins)| (record, Access::Held(pins))))
    }
}

/// Decodes a record of the index.
pub(crate) fn decoded(value: &[u8]) -> Result<ObjectRecord> {
    ObjectRecord::decode(value).ok_or_else(damaged_record)
}

fn damaged_record() -> Error {
    Error::damaged("an object's record in the index", 0)
}
