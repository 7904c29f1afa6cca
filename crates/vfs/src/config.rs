//! The settings of a mount and the parts that it is built from.

use meta::Engine;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Entropy, ObjectStore};

use crate::{ConflictPolicy, VolumeRecord};

/// Maximum parts being assembled at once, over all files.
const ASSEMBLED_PARTS_MAX: usize = 4;

/// Source of the attributes of objects that this mount did not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttributeSource {
    /// Headers if `.tenon/volume` exists, which means that Tenon wrote here; otherwise the listing.
    #[default]
    Auto,
    /// The objects' headers: exact, but one HEAD (or small GET) per object.
    Headers,
    /// Size and time from the listing, default modes; no request per object.
    Listing,
}

/// When a read changes the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Atime {
    /// On each read that reaches the file system.
    Strict,
    /// If the access time is older than the last change, or than a day.
    #[default]
    Relatime,
    /// Never.
    Off,
}

/// Settings of one mount.
#[derive(Debug, Clone)]
pub struct Config {
    /// The prefix of all keys of the volume: empty, or ending in `/`.
    pub prefix: Vec<u8>,
    /// Whether every change is refused.
    pub read_only: bool,
    /// Owner of objects that carry no owner.
    pub uid: u32,
    /// Group of objects that carry no group.
    pub gid: u32,
    /// Permission bits of files whose objects carry none.
    pub file_mode: u16,
    /// Permission bits of directories whose markers carry none.
    pub dir_mode: u16,
    /// The revalidation time: how long a listing or a HEAD is trusted.
    pub metadata_ttl: Duration,
    /// Source of attributes.
    pub attributes: AttributeSource,
    /// When reads update access times.
    pub atime: Atime,
    /// Memory limit of the process in bytes, independent of the bucket's size.
    pub memory_limit_bytes: u64,
    /// Size of the first parts of a multipart upload, in bytes; at least 5 MiB.
    pub part_size_bytes: u64,
    /// Whether a page cache above (the kernel's) keeps bytes that were read sequentially. Caching them here as well would only
    /// take memory, and touching fresh memory is the largest cost of a read.
    pub page_cache_above: bool,
    /// Caches nothing: a write returns when its bytes are stored and named, and a file's cached bytes are dropped at its last
    /// close.
    pub is_uncached: bool,
    /// Whether the store acknowledges changes before the bucket has them: a `close` then survives the end of the process, an
    /// `fsync` the loss of power.
    pub write_back: bool,
    /// Whether other machines mount the bucket too; the mounts then coordinate where they can.
    pub is_shared: bool,
    /// Which side gets the name if an object changed in the bucket while its file was written here. Recorded in a volume record
    /// that this mount creates.
    pub conflicts: ConflictPolicy,
    /// Directory for the cache files of files that are edited at random; created if missing.
    pub cache_dir: PathBuf,
    /// Journal of renames whose objects have not moved in the bucket yet, for a volume named by path; created if missing. It
    /// outlives the mount.
    pub moves_path: PathBuf,
}

impl Config {
    /// Returns the defaults of `tenon mount`, with cache files and journal in `cache_dir`.
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

    /// Returns how many parts of the configured size may be assembled at once, over all files: a tenth of the memory
    /// limit, at least one part and at most [`ASSEMBLED_PARTS_MAX`].
    pub(crate) fn assembled_parts(&self) -> usize {
        let parts = self.memory_limit_bytes / 10 / self.part_size_bytes.max(1);
        usize::try_from(parts).map_or(ASSEMBLED_PARTS_MAX, |parts| parts.clamp(1, ASSEMBLED_PARTS_MAX))
    }
}

/// The dependencies of a file system.
#[derive(Debug, Clone)]
pub struct Dependencies {
    /// The bucket.
    pub store: Arc<dyn ObjectStore>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of random numbers for unique names.
    pub entropy: Arc<Entropy>,
    /// The metadata engine. A volatile one is enough for a volume named by path, whose bucket restores the namespace.
    pub engine: Arc<dyn Engine>,
    /// The volume record that [`VolumeRecord::read`](crate::VolumeRecord::read) returned.
    pub record: Option<VolumeRecord>,
}
