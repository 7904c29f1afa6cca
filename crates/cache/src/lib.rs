//! Caches of the bytes of objects that outlive the process: on the local disk, where all processes of a machine that name the
//! directory share it, and in a bucket that several machines share.
//!
//! Owns the files of one directory: segments of objects (`segment`), the choice of those that are evicted (`eviction`), the
//! identity of what is cached (`identity`), and the objects of the shared cache. Out of scope: memory, what is read next, and whether an
//! object is still current. All calls of the disk cache block.
//!
//! Invariants:
//! - the bytes that are returned were stored under the same identity: source, key and etag, which name the same bytes for ever.
//!   So nothing is invalidated, processes need no locks, and a file needs no sync: every page has a checksum, which covers its
//!   identity, and a page without a right checksum is not there;
//! - files take at most the limit, but for what is being written, and leave a part of the disk free.

mod disk_cache;
mod eviction;
mod identity;
mod segment;
mod shared_cache;

pub use disk_cache::{Counts, DiskCache};
pub use identity::ObjectId;
pub use segment::SEGMENT_BYTES;
pub use shared_cache::{SharedCache, SharedCounts};
