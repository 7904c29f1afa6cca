//! What a mount is doing.

use meta::Ino;
use store::mover::Moving;

use crate::Filesystem;

/// `statfs`. The figures are large and constant where neither a quota nor the room of a disk or drive limits them: an object
/// store has no end.
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

/// A mount's own figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Handles of files that programs have open.
    pub open_handles: usize,
    /// Open files with writes that are not published.
    pub dirty_files: usize,
    /// Bytes held for writing.
    pub write_bytes: u64,
    /// Bytes held by the block cache.
    pub read_bytes: u64,
    /// Bytes the namespace tables take.
    pub metadata_bytes: u64,
    /// Inodes the kernel knows.
    pub kernel_inodes: usize,
    /// Inodes whose attributes wait to be exported to headers.
    pub exports_waiting: usize,
    /// Objects that nothing refers to and that wait to be deleted.
    pub discards_waiting: usize,
    /// What was renamed and has not moved in the bucket yet.
    pub moving: Moving,
    /// Conflicts that nobody has resolved.
    pub conflicts: usize,
    /// What the background lister does.
    pub lister: crate::ListerStatus,
    /// Ops committed to the namespace.
    pub ops: u64,
    /// The limit all of it stays under, in bytes.
    pub memory_limit_bytes: u64,
}

/// Where nothing limits: more than anybody asks for.
const PLENTY: u64 = 1 << 40;
const BLOCK_SIZE_BYTES: u32 = 4096;

impl Filesystem {
    /// Has `statfs` and `fallocate` ask `measure` how much room there is where the objects lie.
    pub fn measure_room_by(&self, measure: crate::MeasureRoom) {
        self.room.set(measure);
    }

    /// Sizes of the file system: the room there is, if it is known, within the quota at the inode, the tree's before the
    /// volume's.
    pub fn statfs(&self, ino: Ino) -> crate::Result<Statfs> {
        let quota = self.quota_at(ino)?.unwrap_or_default();
        let sizes = |limit: Option<u64>, used: i64, unit: u64| {
            let used = u64::try_from(used).unwrap_or(0);
            limit.map_or((PLENTY, PLENTY), |limit| (limit / unit, limit.saturating_sub(used) / unit))
        };
        let unit = u64::from(BLOCK_SIZE_BYTES);
        let (mut blocks, mut blocks_free) = sizes(quota.limits.bytes, quota.used.bytes, unit);
        if let Some(room) = self.room.now() {
            blocks = blocks.min(room.total_bytes / unit);
            blocks_free = blocks_free.min(room.available_bytes / unit);
        }
        let (files, files_free) = sizes(quota.limits.files, quota.used.files, 1);
        let name_bytes_max = store::names::NAME_BYTES_MAX as u32;
        let block_size_bytes = BLOCK_SIZE_BYTES;
        Ok(Statfs { block_size_bytes, blocks, blocks_free, files, files_free, name_bytes_max })
    }

    /// What the mount is doing.
    pub fn status(&self) -> Status {
        Status {
            open_handles: self.handles.len(),
            dirty_files: self.files.all().iter().filter(|file| file.pending().is_dirty).count(),
            write_bytes: self.write_budget.held_bytes(),
            read_bytes: self.blocks.held_bytes(),
            metadata_bytes: self.names.engine().memory_bytes(),
            kernel_inodes: self.references.len(),
            exports_waiting: self.exports_waiting(),
            discards_waiting: self.discards.len(),
            moving: self.mover.as_ref().map(|mover| mover.moving()).unwrap_or_default(),
            conflicts: self.conflicts.len(),
            lister: self.lister.status(),
            ops: self.names.engine().head().0,
            memory_limit_bytes: self.config.memory_limit_bytes,
        }
    }

    /// Violations of the namespace's invariants, one line each; none in a healthy mount.
    pub fn check(&self) -> crate::Result<Vec<String>> {
        let violations = meta::invariants::fsck(self.names.engine().as_ref()).map_err(meta::FsError::from)?;
        Ok(violations.into_iter().map(|violation| violation.to_string()).collect())
    }
}
