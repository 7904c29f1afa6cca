//! Status of a mount.

use meta::Ino;
use staging::mover::Moving;

use crate::Filesystem;

/// Result of `statfs`. Where neither a quota nor the size of a disk or drive is known, the figures are large constants, because
/// an object store has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are POSIX's")]
pub struct Statfs {
    pub block_size_bytes: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_bytes_max: u32,
}

/// Figures of a mount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Open file handles.
    pub open_handles: usize,
    /// Open files with unpublished writes.
    pub dirty_files: usize,
    /// Bytes held for writing.
    pub write_bytes: u64,
    /// Bytes held by the block cache.
    pub read_bytes: u64,
    /// Bytes of reads that were in the block cache.
    pub read_hit_bytes: u64,
    /// Bytes of reads that had to wait for the store.
    pub read_missed_bytes: u64,
    /// Figures of the disk cache, if there is one.
    pub disk_cache: Option<cache::Counts>,
    /// Figures of the shared cache, if there is one.
    pub shared_cache: Option<cache::SharedCounts>,
    /// Bytes of memory used by the metadata engine.
    pub metadata_bytes: u64,
    /// Failure after which the metadata engine refuses all changes until the volume is mounted again.
    pub metadata_failure: Option<String>,
    /// Inodes that the kernel references.
    pub kernel_inodes: usize,
    /// Inodes whose attributes wait to be exported to headers.
    pub exports_waiting: usize,
    /// Unused objects that wait for their deletion.
    pub discards_waiting: usize,
    /// Renamed objects that have not moved in the bucket yet.
    pub moving: Moving,
    /// Unresolved conflicts.
    pub conflicts: usize,
    /// State of the background lister.
    pub lister: crate::ListerStatus,
    /// Sequence number of the newest commit to the namespace.
    pub ops: u64,
    /// The memory limit in bytes.
    pub memory_limit_bytes: u64,
}

/// The number of blocks or files that is reported where nothing is limited: more than any program asks for.
const UNLIMITED: u64 = 1 << 40;
/// The block size that `statfs` reports.
const BLOCK_SIZE_BYTES: u32 = 4096;

impl Filesystem {
    /// Returns the sizes of the file system: the free space if it is known, limited by the quota at the inode (the tree's
    /// before the volume's).
    pub fn statfs(&self, ino: Ino) -> crate::Result<Statfs> {
        let ino = if self.views.derived.is_derived_directory(ino) { Ino::ROOT } else { ino };
        let quota = self.names.quota_at(ino)?.unwrap_or_default();
        let sizes = |limit: Option<u64>, used: i64, unit: u64| {
            let used = u64::try_from(used).unwrap_or(0);
            limit.map_or((UNLIMITED, UNLIMITED), |limit| (limit / unit, limit.saturating_sub(used) / unit))
        };
        let unit = u64::from(BLOCK_SIZE_BYTES);
        let (mut blocks, mut blocks_free) = sizes(quota.limits.bytes, quota.used.bytes, unit);
        if let Some(space) = self.content.disk_space().now() {
            blocks = blocks.min(space.total_bytes / unit);
            blocks_free = blocks_free.min(space.available_bytes / unit);
        }
        let (files, files_free) = sizes(quota.limits.files, quota.used.files, 1);
        let name_bytes_max = store::names::NAME_BYTES_MAX as u32;
        let block_size_bytes = BLOCK_SIZE_BYTES;
        Ok(Statfs { block_size_bytes, blocks, blocks_free, files, files_free, name_bytes_max })
    }

    /// Returns the figures of the mount.
    pub fn status(&self) -> Status {
        let (read_hit_bytes, read_missed_bytes) = self.content.blocks().read_counts();
        Status {
            read_hit_bytes,
            read_missed_bytes,
            disk_cache: self.content.tiers().disk_counts(),
            shared_cache: self.content.tiers().shared_counts(),
            open_handles: self.names.handles().len(),
            dirty_files: self.content.files().all().iter().filter(|file| file.pending().is_dirty).count(),
            write_bytes: self.content.write_budget().held_bytes(),
            read_bytes: self.content.blocks().held_bytes(),
            metadata_bytes: self.names.tables().engine().memory_bytes(),
            metadata_failure: self.names.tables().engine().failure().map(|failure| failure.to_string()),
            kernel_inodes: self.names.references().len(),
            exports_waiting: self.bucket.exports.exports_waiting(),
            discards_waiting: self.content.discards().len(),
            moving: self.bucket.moves.mover().as_ref().map(|mover| mover.moving()).unwrap_or_default(),
            conflicts: self.bucket.conflicts.records().len(),
            lister: self.bucket.lister.state().status(),
            ops: self.names.tables().engine().head().0,
            memory_limit_bytes: self.mount.memory.limit_bytes(),
        }
    }

    /// Returns violations of the namespace's invariants, one line each; none in a healthy mount.
    pub fn check(&self) -> crate::Result<Vec<String>> {
        let tables = self.names.tables().snapshot()?;
        let violations = meta::invariants::fsck(&*tables).map_err(meta::FsError::from)?;
        Ok(violations.into_iter().map(|violation| violation.to_string()).collect())
    }
}
