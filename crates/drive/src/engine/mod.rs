//! The engine: the drive without threads and clock. It holds the state of the device and the steps that change it.
//!
//! Owns the device, the space, the index and the head of the log. Every step is a call that ends. The front end, or a simulated world,
//! decides when to call `commit`, `checkpoint` and `compact`.
//!
//! Invariants: changes survive a loss of power once `commit` has returned. Data is flushed before the frame that names it is written. A
//! frame is written only when the previous one is durable. After a failed write or flush of a frame, a manifest or a superblock, nothing
//! is committed any more.

mod check;
mod checkpoint;
mod commit;
mod compact;
mod format_device;
mod layout;
mod log;
mod log_reader;
mod open;
mod verify;

pub use check::Checked;
pub(crate) use commit::{CacheRekey, InlinePut, Prepared, Purpose};
pub use format_device::FormatOptions;
pub use layout::{Area, Use};
pub(crate) use log_reader::LogReader;

use crate::device::{BlockDevice, Buffers};
use crate::error::{Error, Result};
use crate::format::{DriveId, FRAME_HEADER_BYTES, Geometry, Superblock, blocks_of};
use crate::index::{Index, IndexTable};
use crate::space::{LOG_RESERVE_ZONES, SharedSpace, Space, lock};
use log::{Log, SharedLog};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The most bytes of a frame of several commits. A single longer commit gets a frame of its own.
const FRAME_BYTES_MAX: u64 = 4 << 20;

/// The overhead of a table beyond its entries, in bytes, for tables of any length.
const TABLE_BYTES_MIN: u64 = 256 << 10;

/// The longest object that is stored in a frame by default, in bytes, if zones are long enough.
const INLINE_BYTES_MAX: u64 = 256 << 10;

/// The longest object that is stored in a frame if it is expected to be short-lived, in bytes.
const INLINE_BYTES_LIMIT: u64 = 1 << 20;

/// Size of the buffer pool for reads and writes: the size of the read cache divided by the first number, within these bounds in bytes.
const BUFFER_POOL_DIVISOR: u64 = 4;
const BUFFER_POOL_BYTES_MIN: u64 = 64 << 20;
const BUFFER_POOL_BYTES_MAX: u64 = 256 << 20;

/// Options for opening a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Memory for the index, in bytes. Half is for entries that are in no table yet, half for cached blocks and filters of tables. In
    /// addition, the index takes the entries of one commit and 1 KiB per million entries.
    pub index_bytes: usize,
    /// Size of the read cache for bytes of objects, in bytes; 0 disables it.
    pub read_cache_bytes: u64,
    /// Open without writing anything.
    pub read_only: bool,
    /// Open a damaged drive read-only with its intact part: the log up to the damage, and the readable tables of the index.
    /// [`Drive::losses`](crate::Drive::losses) lists what is missing.
    pub before_damage: bool,
}

impl OpenOptions {
    fn buffer_pool_bytes(&self) -> usize {
        let part_bytes = self.read_cache_bytes / BUFFER_POOL_DIVISOR;
        part_bytes.clamp(BUFFER_POOL_BYTES_MIN, BUFFER_POOL_BYTES_MAX) as usize
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { index_bytes: 256 << 20, read_cache_bytes: 256 << 20, read_only: false, before_damage: false }
    }
}

/// The state of an open drive, and the steps that change it.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) drive: DriveId,
    pub(crate) geometry: Geometry,
    pub(crate) space: SharedSpace,
    pub(crate) index: Index,
    /// The pool of buffers for reads and writes.
    pub(crate) buffers: Buffers,
    options: OpenOptions,
    log: SharedLog,
    root: Mutex<Root>,
    /// Held by a compaction in progress.
    compaction_lock: Mutex<()>,
    last_write: AtomicU64,
    last_table: AtomicU64,
    failed: OnceLock<String>,
    flush_lock: Mutex<()>,
    /// Losses found by an opening with `before_damage`, one line each.
    pub(crate) losses: Vec<String>,
    /// Failed checkpoints since the last successful one.
    failed_checkpoints: AtomicU32,
}

/// The superblock, and the tables that its manifest names.
#[derive(Debug)]
struct Root {
    superblock: Superblock,
    /// Tables that the manifest still names but the index no longer uses.
    retiring: Vec<Arc<IndexTable>>,
}

impl Engine {
    /// Returns a new write number, greater than all before.
    pub(crate) fn next_write(&self) -> u64 {
        self.last_write.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the longest object that is stored in a frame by default, in bytes.
    pub(crate) fn inline_bytes_max(&self) -> u64 {
        INLINE_BYTES_MAX.min(self.inline_bytes_limit())
    }

    /// Returns the longest object that may be stored in a frame at all, in bytes.
    pub(crate) fn inline_bytes_limit(&self) -> u64 {
        INLINE_BYTES_LIMIT.min(self.geometry.zone_bytes() / 8)
    }

    /// Returns the zones that objects must leave free: for the log, and for a checkpoint and a compaction of the whole index.
    pub(crate) fn zones_reserved(&self) -> u64 {
        self.zones_reserved_beside(self.index_bytes())
    }

    /// Like `zones_reserved`, for an index of this length.
    fn zones_reserved_beside(&self, index_bytes: u64) -> u64 {
        let rewritten_bytes = 2 * index_bytes + 2 * TABLE_BYTES_MIN;
        LOG_RESERVE_ZONES + rewritten_bytes.div_ceil(self.geometry.zone_bytes())
    }

    /// Returns the length of the index, in tables and in memory.
    fn index_bytes(&self) -> u64 {
        let tables: u64 = self.index.view().tables.iter().map(|table| table.source().len()).sum();
        tables + self.index.memtable_bytes() as u64
    }

    /// Keeps the blocks that a checkpoint may need if the memtable grew by `more` bytes.
    fn reserve_for_checkpoint(&self, space: &mut Space, more: u64) {
        let memtable_bytes = self.index.memtable_bytes() as u64 + self.index.frozen_bytes() + more;
        let in_rows = |bytes| self.geometry.round_up_to_rows(blocks_of(bytes));
        space.set_checkpoint_blocks(
            in_rows(table_bytes_max(memtable_bytes)) + in_rows(space.manifest_bytes_max()),
        );
    }

    /// Returns whether zones are few and a checkpoint is likely to free one.
    pub(crate) fn needs_zone_from_checkpoint(&self) -> bool {
        self.log_bytes() >= self.geometry.zone_bytes()
            && lock(&self.space).log_zones_left() < LOG_RESERVE_ZONES
    }

    /// Returns the most bytes that are committed together.
    pub(crate) fn frame_bytes_max(&self) -> u64 {
        FRAME_BYTES_MAX.min(self.geometry.zone_bytes() / 2)
    }

    /// Returns the most bytes to commit together now, such that the head zone is filled before the next one begins.
    pub(crate) fn frame_bytes_fitting(&self) -> u64 {
        self.frame_bytes_max().min(self.room_in_head().saturating_sub(FRAME_HEADER_BYTES as u64))
    }

    /// Fails if the drive is read-only, or if a write failed before.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::Failed("it was opened read-only".into()));
        }
        self.failed.get().map_or(Ok(()), |reason| Err(Error::Failed(reason.clone())))
    }

    /// Makes everything written before durable. Flushes run one at a time, and none after a failed one: that flush may have lost
    /// writes of others, which no later flush would report. `at` is the position of what is flushed, for the error.
    fn flush(&self, at: u64) -> Result<()> {
        let _alone = self.flush_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_writable()?;
        self.device.flush().map_err(|error| self.fail(Error::device(at)(error)))
    }

    /// Makes the drive read-only, for this reason.
    fn fail(&self, error: Error) -> Error {
        let _first = self.failed.set(error.to_string());
        error
    }

    fn lock_root(&self) -> MutexGuard<'_, Root> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the greatest length of a table whose entries take `entries_bytes`, in bytes.
fn table_bytes_max(entries_bytes: u64) -> u64 {
    entries_bytes + entries_bytes / 8 + TABLE_BYTES_MIN
}
