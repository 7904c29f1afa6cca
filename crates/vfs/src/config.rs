//! The settings of a mount, and its dependencies: the store, the clock, the source of random numbers and the metadata
//! engine.

use cache::{DiskCache, SharedCache};
use meta::{Engine, Moment};
use staging::packs::Packs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Entropy, ObjectStore};

use crate::layout::KeySpace;
use crate::{ConflictPolicy, VolumeRecord};

/// S3's minimum length of a part except the last; also the shortest range that is worth a part copy.
pub(crate) const PART_BYTES_MIN: u64 = 5 << 20;
/// Maximum number of full parts that are assembled in memory at once, over all files.
const ASSEMBLED_PARTS_MAX: u64 = 8;
/// Minimum part length of assemblies, whatever the part size of streams is: a shorter file is stored in one request.
const ASSEMBLED_BYTES_MIN: u64 = 1 << 20;

/// Source of the attributes of objects that this mount did not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttributeSource {
    /// Headers if `.tenon/volume` exists, which means that Tenon wrote here, or if the bucket is shared; otherwise the
    /// listing.
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

/// Settings of a mount of a batch's private namespace, in place of the volume's own.
#[derive(Debug, Clone)]
pub struct BatchMode {
    /// The store in front of the bucket, for small contents.
    pub packs: Arc<Packs>,
    /// Prefix of the keys of the batch's objects.
    pub content_prefix: Box<[u8]>,
    /// The moment that all changes get.
    pub at: Moment,
}

/// Settings of one mount.
#[derive(Debug, Clone)]
pub struct Config {
    /// The prefix of all keys of the volume: empty, or ending in `/`.
    pub prefix: Vec<u8>,
    /// Whether the directories at the root are buckets. Tenon's own objects of a file are then in its bucket.
    pub joins_buckets: bool,
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
    /// The revalidation time: how long a listing or a HEAD is trusted. On a shared bucket half of it counts.
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
    /// Whether a page cache above is bypassed for a file that is created for writing only, until it is closed. The kernel then asks for
    /// no `security.capability` before the first write, and keeps no copy of the bytes. Pays off if files are rarely read again.
    pub bypasses_page_cache_for_new_files: bool,
    /// Whether writes and closed files are not cached: a write returns when its bytes are stored and named, and a
    /// file's cached bytes are dropped at its last close.
    pub is_uncached: bool,
    /// Whether the store acknowledges changes before the bucket has them: a `close` then survives the end of the process, an
    /// `fsync` the loss of power.
    pub write_back: bool,
    /// Whether other machines mount the bucket too; the mounts then coordinate where they can.
    pub is_shared: bool,
    /// The batch whose namespace is mounted; `None` for a mount of the volume itself.
    pub batch: Option<BatchMode>,
    /// Which side gets the name if an object changed in the bucket while its file was written here. Recorded in a volume record
    /// that this mount creates.
    pub conflicts: ConflictPolicy,
    /// The cache on the local disk of bytes that were read; `None` if there is none.
    pub disk_cache: Option<Arc<DiskCache>>,
    /// The cache below it that machines share. It is used only together with the one on disk.
    pub shared_cache: Option<Arc<SharedCache>>,
    /// Directory for the cache files of files that are edited at random; created if missing.
    pub cache_dir: PathBuf,
    /// Journal of renames whose objects have not moved in the bucket yet, for a volume named by path; created if missing. It
    /// outlives the mount.
    pub moves_path: PathBuf,
}

impl Config {
    /// Returns default settings, with the cache files and the journal of moves in `cache_dir`.
    pub fn new(cache_dir: PathBuf) -> Self {
        Self {
            prefix: Vec::new(),
            joins_buckets: false,
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
            bypasses_page_cache_for_new_files: false,
            is_uncached: false,
            write_back: false,
            is_shared: false,
            batch: None,
            disk_cache: None,
            shared_cache: None,
            moves_path: cache_dir.join("moves"),
            conflicts: ConflictPolicy::default(),
            cache_dir,
        }
    }

    /// Returns what determines the keys, without the volume's record.
    pub(crate) fn key_space(&self) -> KeySpace<'_> {
        KeySpace { prefix: &self.prefix, record: None, joins_buckets: self.joins_buckets }
    }

    /// Returns the length of the parts of an assembly; a file that is no longer is stored in one request. With a small memory
    /// limit the parts are shorter than those of streams, so that two of them take a tenth of the memory if possible.
    pub(crate) fn assembled_part_bytes(&self) -> u64 {
        let longest = (self.memory_limit_bytes / 20).max(PART_BYTES_MIN);
        self.part_size_bytes.clamp(ASSEMBLED_BYTES_MIN, longest)
    }

    /// Returns how many bytes may be assembled in memory at once, over all files: a tenth of the memory limit, at least two parts
    /// and at most [`ASSEMBLED_PARTS_MAX`] parts. One file may use half of them.
    pub(crate) fn assembled_bytes_max(&self) -> u64 {
        let part_bytes = self.assembled_part_bytes();
        (self.memory_limit_bytes / 10).clamp(2 * part_bytes, ASSEMBLED_PARTS_MAX * part_bytes)
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
    /// The volume record that [`VolumeRecord::read`](crate::VolumeRecord::read) returned; `None` if the bucket has
    /// none.
    pub record: Option<VolumeRecord>,
}
