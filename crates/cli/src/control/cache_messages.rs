//! Messages about the caches below memory.

use serde::{Deserialize, Serialize};

/// State of filling the disk cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WarmUp {
    /// Files that the cache has now.
    pub(crate) files: u64,
    /// Length of these files.
    pub(crate) bytes: u64,
    /// Bytes that were read from the bucket, as the cache did not have them.
    pub(crate) read_bytes: u64,
    /// Files and directories that could not be read.
    pub(crate) failed: u64,
    /// The first failures, one line each.
    pub(crate) failures: Vec<String>,
}

/// Figures of the disk cache since the mount began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskCacheReport {
    /// Bytes of the files, those of other mounts of the machine included, as far as they have been measured.
    pub(crate) used_bytes: u64,
    /// Limit of the files' bytes.
    pub(crate) limit_bytes: u64,
    /// Bytes that were read from it.
    pub(crate) hit_bytes: u64,
    /// Bytes that were stored in it.
    pub(crate) stored_bytes: u64,
    /// Bytes of files that were deleted to stay within the limit.
    pub(crate) evicted_bytes: u64,
    /// Files that were deleted because of a wrong checksum.
    pub(crate) damaged: u64,
    /// Calls of the disk that failed.
    pub(crate) failures: u64,
}

impl From<cache::Counts> for DiskCacheReport {
    fn from(counts: cache::Counts) -> Self {
        Self {
            used_bytes: counts.used_bytes,
            limit_bytes: counts.limit_bytes,
            hit_bytes: counts.hit_bytes,
            stored_bytes: counts.stored_bytes,
            evicted_bytes: counts.evicted_bytes,
            damaged: counts.damaged,
            failures: counts.failures,
        }
    }
}

/// Figures of the shared cache since the mount began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedCacheReport {
    /// Bytes of segments that were there.
    pub(crate) hit_bytes: u64,
    /// Segments that were not there.
    pub(crate) missed: u64,
    /// Bytes of segments that were stored.
    pub(crate) stored_bytes: u64,
    /// Segments with a wrong checksum.
    pub(crate) damaged: u64,
    /// Requests that failed or got no answer in time.
    pub(crate) failures: u64,
}

impl From<cache::SharedCounts> for SharedCacheReport {
    fn from(counts: cache::SharedCounts) -> Self {
        Self {
            hit_bytes: counts.hit_bytes,
            missed: counts.missed,
            stored_bytes: counts.stored_bytes,
            damaged: counts.damaged,
            failures: counts.failures,
        }
    }
}
