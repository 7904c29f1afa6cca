//! The drive without threads and without a clock: what is on the device, and the steps that change it.
//!
//! Owns the device, the space, the index and the log's head. Every step is a call that ends: who calls `commit`, `checkpoint`
//! and `compact`, and when, is the shell's business, or a simulated world's.
//!
//! Invariants: what `commit` has returned for survives the loss of power; data is flushed before the frame that names it is
//! written; a frame is written only when the one before it is durable; after a frame, a manifest, a superblock or a flush that failed
//! nothing is committed any more.

mod check;
mod checkpoint;
mod commit;
mod compact;
mod format;
mod layout;
mod log;
mod log_reader;
mod open;
mod verify;

pub use check::Checked;
pub(crate) use commit::{Named, Prepared, Purpose, Small};
pub use format::FormatOptions;
pub use layout::{Area, Use};
pub(crate) use log_reader::LogReader;

use crate::device::{BlockDevice, Buffers};
use crate::error::{Error, Result};
use crate::format::{DriveId, FRAME_HEADER_BYTES, Geometry, Superblock, blocks_of};
use crate::index::{Index, IndexTable};
use crate::space::{SharedSpace, Space, ZONES_RESERVED, lock};
use log::{Log, SharedLog};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The most bytes of a frame: what is committed together, but for one change that alone is longer.
const FRAME_BYTES_MAX: u64 = 4 << 20;

/// What a table is longer than its entries, in bytes, however few they are.
const TABLE_BYTES_MIN: u64 = 256 << 10;

/// The longest object that is kept in a frame, in bytes, where zones are large enough.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// The same where it is known that it will be gone soon.
const PIECE_BYTES_END: u64 = 1 << 20;

/// How much memory for reads and writes is kept for the next ones: this part of what is kept of objects, within bounds, in bytes.
const BUFFERS_KEPT_PART: u64 = 4;
const BUFFERS_KEPT_BYTES_MIN: u64 = 64 << 20;
const BUFFERS_KEPT_BYTES_MAX: u64 = 256 << 20;

/// How to open a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// How much memory the index may take, in bytes: half of it for what is in no table yet, half for what was read of tables, their
    /// filters too. Beside that are what one commit adds, and 1 KiB for each million entries.
    pub index_bytes: usize,
    /// How much of objects' bytes stays in memory after they were read or stored, in bytes; 0: nothing.
    pub read_cache_bytes: u64,
    /// Write nothing at all.
    pub read_only: bool,
    /// Open a damaged drive too, with what is whole of it, to read only: the log as far as it can be read, and the tables of the index
    /// that can. [`Drive::losses`](crate::Drive::losses) says what is left out.
    pub before_damage: bool,
}

impl OpenOptions {
    fn buffers_kept_bytes(&self) -> usize {
        let part_bytes = self.read_cache_bytes / BUFFERS_KEPT_PART;
        part_bytes.clamp(BUFFERS_KEPT_BYTES_MIN, BUFFERS_KEPT_BYTES_MAX) as usize
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { index_bytes: 256 << 20, read_cache_bytes: 256 << 20, read_only: false, before_damage: false }
    }
}

/// A drive.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) drive: DriveId,
    pub(crate) geometry: Geometry,
    pub(crate) space: SharedSpace,
    pub(crate) index: Index,
    /// Memory for what is read and written.
    pub(crate) buffers: Buffers,
    options: OpenOptions,
    log: SharedLog,
    root: Mutex<Root>,
    /// Held by the one compaction that is under way.
    compacting: Mutex<()>,
    last_write: AtomicU64,
    last_table: AtomicU64,
    failed: OnceLock<String>,
    flushing: Mutex<()>,
    /// Losses of an opening before the damage, one line each.
    pub(crate) losses: Vec<String>,
    /// Checkpoints that failed since the last that was made.
    failed_checkpoints: AtomicU32,
}

/// What the superblock leads to.
#[derive(Debug)]
struct Root {
    superblock: Superblock,
    /// Tables that the manifest names and the index does not any more.
    retiring: Vec<Arc<IndexTable>>,
}

impl Machine {
    /// The number of a write, greater than any before.
    pub(crate) fn next_write(&self) -> u64 {
        self.last_write.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The longest object that is kept in a frame, in bytes.
    pub(crate) fn piece_bytes_max(&self) -> u64 {
        PIECE_BYTES_MAX.min(self.piece_bytes_end())
    }

    /// No object may be longer in a frame, in bytes, whatever is known of it.
    pub(crate) fn piece_bytes_end(&self) -> u64 {
        PIECE_BYTES_END.min(self.geometry.zone_bytes() / 8)
    }

    /// How many zones objects leave: some to the log, and what a checkpoint and a compaction of the whole index would take.
    pub(crate) fn zones_reserved(&self) -> u64 {
        self.zones_reserved_beside(self.index_bytes())
    }

    /// The same of an index that takes so much.
    fn zones_reserved_beside(&self, index_bytes: u64) -> u64 {
        let rewritten_bytes = 2 * index_bytes + 2 * TABLE_BYTES_MIN;
        ZONES_RESERVED + rewritten_bytes.div_ceil(self.geometry.zone_bytes())
    }

    /// What the index takes, in tables and in memory.
    fn index_bytes(&self) -> u64 {
        let tables: u64 = self.index.view().tables.iter().map(|table| table.source().len()).sum();
        tables + self.index.memory_bytes() as u64
    }

    /// Keeps what a checkpoint would take at most if so many bytes more were in the memory of the index.
    fn keep_for_checkpoint(&self, space: &mut Space, more: u64) {
        let memory_bytes = self.index.memory_bytes() as u64 + self.index.frozen_bytes() + more;
        let in_rows = |bytes| self.geometry.in_rows(blocks_of(bytes));
        space.keep_for_index(in_rows(table_bytes_max(memory_bytes)) + in_rows(space.manifest_bytes_max()));
    }

    /// Whether zones are few, and a checkpoint would likely win one.
    pub(crate) fn wants_relief(&self) -> bool {
        self.log_bytes() >= self.geometry.zone_bytes() && lock(&self.space).log_zones() < ZONES_RESERVED
    }

    /// The most bytes that are committed together.
    pub(crate) fn frame_bytes_max(&self) -> u64 {
        FRAME_BYTES_MAX.min(self.geometry.zone_bytes() / 2)
    }

    /// The most bytes that are committed together now, so that a zone is full before the next begins.
    pub(crate) fn frame_bytes_fitting(&self) -> u64 {
        self.frame_bytes_max().min(self.room_in_head().saturating_sub(FRAME_HEADER_BYTES as u64))
    }

    /// Refuses writes after one that failed, and where only reading was asked for.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::Failed("it was opened to read only".into()));
        }
        self.failed.get().map_or(Ok(()), |reason| Err(Error::Failed(reason.clone())))
    }

    /// What was written before is on the medium. One after the other, and none after one that failed: that may have lost what others
    /// wrote, and no later one would say so. `at` is of what is flushed, in bytes, for who reads the error.
    fn flush(&self, at: u64) -> Result<()> {
        let _alone = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_writable()?;
        self.device.flush().map_err(|error| self.fail(Error::device(at)(error)))
    }

    /// Nothing is committed any more.
    fn fail(&self, error: Error) -> Error {
        let _first = self.failed.set(error.to_string());
        error
    }

    fn root(&self) -> MutexGuard<'_, Root> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a table of entries of so many bytes is at most, in bytes.
fn table_bytes_max(entries_bytes: u64) -> u64 {
    entries_bytes + entries_bytes / 8 + TABLE_BYTES_MIN
}
