//! What a mount is told at its beginning.

use meta::Engine;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Entropy, ObjectStore};

use crate::{Atime, ConflictPolicy, VolumeRecord};

/// Parts of files being assembled at the same time, over all files.
const ASSEMBLED_PARTS_MAX: usize = 4;

/// Where attributes of objects that this mount did not write come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttributeSource {
    /// Headers where `.tenon/volume` says that Tenon wrote here, else the listing.
    #[default]
    Auto,
    /// The objects' headers: exact, one HEAD (or small GET) for each object looked at.
    Headers,
    /// Size and time of the listing, default modes; no request for each object.
    Listing,
}

/// Settings of one mount.
#[derive(Debug, Clone)]
pub struct Config {
    /// The volume's beginning of all keys: empty, or ending in `/`.
    pub prefix: Vec<u8>,
    /// Refuse every change.
    pub read_only: bool,
    /// Owner of what carries no owner.
    pub uid: u32,
    /// Group of what carries no group.
    pub gid: u32,
    /// Permission bits of files that carry none.
    pub file_mode: u16,
    /// Permission bits of directories that carry none.
    pub dir_mode: u16,
    /// The revalidation time: how long a listing or an object's description is believed.
    pub metadata_ttl: Duration,
    /// Where attributes come from.
    pub attributes: AttributeSource,
    /// When reading changes access times.
    pub atime: Atime,
    /// What the process may use, in bytes, however large the bucket.
    pub memory_limit_bytes: u64,
    /// Size of the first parts of a multipart upload, in bytes; at least 5 MiB.
    pub part_size_bytes: u64,
    /// Whether a page cache above keeps what was read in order, as the kernel's does: here it would only take up
    /// memory, and touching fresh memory is what costs a read most.
    pub page_cache_above: bool,
    /// Nothing is kept: a write returns when its bytes are stored and named, a file's bytes are forgotten as soon as
    /// nobody has it open.
    pub is_uncached: bool,
    /// The store acknowledges changes before the bucket has them: a `close` survives the end of the process, an
    /// `fsync` the loss of power.
    pub write_back: bool,
    /// Other machines mount the bucket too: what can be agreed with them at once is.
    pub is_shared: bool,
    /// Whose bytes have the name, where an object changed in the bucket while its file was written here. A volume without
    /// a record gets it into its record.
    pub conflicts: ConflictPolicy,
    /// Where files being edited at random live; made if missing.
    pub cache_dir: PathBuf,
    /// The journal of what was renamed and has not moved in the bucket yet, of a volume named by path; made if missing.
    /// What it says outlives the mount.
    pub moves_path: PathBuf,
}

impl Config {
    /// The defaults of `tenon mount`, with cache and journal in `cache_dir`.
    pub fn new(cache_dir: PathBuf) -> Self {
        Self {
            prefix: Vec::new(),
            read_only: false,
            uid: 0,
            gid: 0,
            file_mode: 0o644,
            dir_mode: 0o755,
            metadata_ttl: Duration::from_secs(5),
            attributes: AttributeSource::Auto,
            atime: Atime::default(),
            memory_limit_bytes: 1 << 30,
            part_size_bytes: 8 << 20,
            page_cache_above: false,
            is_uncached: false,
            write_back: false,
            is_shared: false,
            moves_path: cache_dir.join("moves"),
            conflicts: ConflictPolicy::default(),
            cache_dir,
        }
    }

    /// The share of the memory limit for names and attributes: 40 %.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.memory_limit_bytes / 100 * 40
    }

    /// The share for bytes being read: 22 %.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.memory_limit_bytes / 100 * 22
    }

    /// The share for bytes being written: 23 %. The rest of the limit is slack for sockets and code.
    pub(crate) fn write_bytes(&self) -> u64 {
        self.memory_limit_bytes / 100 * 23
    }

    /// How many parts of the configured size may be assembled at the same time, over all files: half the share for
    /// writing, at least one part.
    pub(crate) fn assembled_parts(&self) -> usize {
        let parts = self.write_bytes() / 2 / self.part_size_bytes.max(1);
        usize::try_from(parts).map_or(ASSEMBLED_PARTS_MAX, |parts| parts.clamp(1, ASSEMBLED_PARTS_MAX))
    }
}

/// The parts a file system is joined from.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The bucket.
    pub store: Arc<dyn ObjectStore>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Numbers for unique names.
    pub entropy: Arc<Entropy>,
    /// Where the namespace lives. One that forgets will do for a volume named by path, whose bucket tells it again.
    pub engine: Arc<dyn Engine>,
    /// What [`VolumeRecord::read`](crate::VolumeRecord::read) found.
    pub record: Option<VolumeRecord>,
}
