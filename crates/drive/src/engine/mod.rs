//! The engine: the drive without threads and clock. It holds the state of the device and the steps that change it.
//!
//! Joins device, log, index and space, which know each other in one direction: log and index are on top of the space, and the space on
//! top of the device. Every step is a call that ends. The front end, or a simulated world, decides when to call `commit`, `checkpoint`
//! and `compact`.
//!
//! Invariants: changes survive a loss of power once `commit` has returned. Data is flushed before the frame that names it is written. A
//! frame is written only when the previous one is durable. After a failed write or flush of a frame, a manifest or a superblock, nothing
//! is committed any more.

mod check;
mod checkpoint;
mod commit;
mod compact;
mod format_device;
mod frame_objects;
mod layout;
mod lost_buckets;
mod open;
mod options;
mod prepared;
mod recovery;
mod root;
mod verify;

pub use check::Checked;
pub use format_device::FormatOptions;
pub(crate) use frame_objects::FrameObject;
pub use layout::{Area, Use};
pub use options::OpenOptions;
pub(crate) use prepared::{CacheRekey, InlinePut, Prepared};

use crate::device::{BlockDevice, Buffers, FailStopDevice};
use crate::error::Result;
use crate::format::{DriveId, Geometry};
use crate::index::Index;
use crate::log::{LogState, SharedLog};
use crate::policy::{IndexSize, Policy, Usage};
use crate::space::{SharedSpace, Space, lock};
use root::SharedRoot;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The state of an open drive, and the steps that change it.
#[derive(Debug)]
pub(crate) struct Engine {
    device: FailStopDevice,
    pub(crate) drive: DriveId,
    pub(crate) geometry: Geometry,
    pub(crate) policy: Policy,
    pub(crate) space: SharedSpace,
    pub(crate) index: Index,
    pub(crate) log: SharedLog,
    /// The pool of buffers for reads and writes.
    pub(crate) buffers: Buffers,
    root: SharedRoot,
    /// Held by a compaction in progress.
    compaction_lock: Mutex<()>,
    /// The last write number that was given out.
    last_write: AtomicU64,
    /// Losses found by an opening with `before_damage`, one line each.
    pub(crate) losses: Vec<String>,
}

impl Engine {
    /// Returns a new write number, greater than all before.
    pub(crate) fn next_write(&self) -> u64 {
        self.last_write.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the device, to read it, and to write data that nothing refers to yet.
    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        self.device.device()
    }

    /// Fails if the drive is read-only, or if a write or a flush failed before.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.device.check_writable()
    }

    /// Returns the use of the drive, for the admission policy. Never waits for the device.
    pub(crate) fn usage(&self) -> Usage {
        let index = self.index.size();
        self.usage_of(index, &self.log.published(), &lock(&self.space))
    }

    /// Returns the usage of the drive that the policy decides on.
    fn usage_of(&self, index: IndexSize, log: &LogState, space: &Space) -> Usage {
        let failed_checkpoints = self.root.failed_checkpoints();
        Usage { space: space.free_space(), index, log: log.size(), failed_checkpoints }
    }

    /// Returns the number of zones that objects must leave free.
    pub(crate) fn zones_reserved(&self) -> u64 {
        self.policy.zones_reserved(self.index.size())
    }

    /// Keeps the blocks that a checkpoint of this index may need if the memtable grew by `more_bytes`.
    fn reserve_for_checkpoint(&self, space: &mut Space, index: IndexSize, more_bytes: u64) {
        let blocks = self.policy.checkpoint_blocks(index, more_bytes, space.manifest_bytes_max());
        space.set_checkpoint_blocks(blocks);
    }

    /// Waits until no compaction is in progress.
    pub(crate) fn wait_for_compaction(&self) {
        drop(self.compaction_lock.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
