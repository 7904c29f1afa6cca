//! The file system as a library: files over the objects of one bucket.
//!
//! Owns open files, the read and write paths, the cached state of directories, changes by other clients and conflicts
//! with them, views, and the objects that Tenon's S3 endpoint shows. Its calls follow POSIX; a front end (`fuse`)
//! translates requests into them.
//!
//! Does not know FUSE or HTTP, keeps names only in the namespace tables (`meta`), and, in a volume named by path,
//! changes the namespace for a foreign object only in `reconcile`; `readlink` alone records the target that it reads.
//!
//! Invariants: data is stored before the metadata that names it; a failed `close` or `fsync` reports the failure and keeps the
//! writes while the file is open; memory stays within [`Config::memory_limit_bytes`] whatever the bucket's size; a change made
//! by this mount is never undone by an older listing or HEAD of the bucket.

mod attr;
mod base;
mod bucket;
mod config;
mod content;
mod derived;
mod error;
mod fail_fast;
mod filesystem;
mod followers;
mod kernel_caches;
mod layout;
mod memory_limit;
mod moments;
mod mount;
mod names;
mod objects;
mod ops;
mod outcomes;
pub mod paths;
mod volume;
mod volumes;

pub use attr::{Attr, Caller, Changes, Time};
pub use bucket::conflicts::resolve::ConflictResolver;
pub use bucket::conflicts::{Conflict, ConflictPolicy, ConflictRecords, Keep, Side};
pub use bucket::hints::{Hint, Hints, ReportedState};
pub use bucket::lister::ListerStatus;
pub use bucket::mover::Moves;
pub use config::{Atime, AttributeSource, BatchMode, Config, Dependencies};
pub use content::audit::Audit;
pub use content::disk_space::{DiskSpace, MeasureDiskSpace};
pub use content::export_mark::ExportMark;
pub use content::garbage::{has_open_batches, unused_content};
pub use content::pack_census::{PacksToRewrite, packs_to_rewrite};
pub use content::write::publisher::Publisher;
pub use derived::router::ViewRouter;
pub use derived::{
    Asked, Derived, DerivedEntry, DerivedFile, DerivedStale, ListingCache, Placed, StaleNames,
};
pub use error::{Error, Result};
pub use filesystem::Filesystem;
pub use followers::front_ends::InvalidationQueue;
pub use followers::invalidation::{DeliveryMarker, Invalidation};
pub use kernel_caches::KernelCaches;
pub use layout::{KeySpace, LOST_AND_FOUND, RESERVED, batch_objects, leases, metadata_backups};
pub use meta::{Ino, Kind, Limits, Locker, Moment, Quota, Usage};
pub use names::handles::{Handle, Opened};
pub use names::locks::{Lock, LockKind, LockOwner};
pub use names::pending_merges::PendingMerge;
pub use objects::{directory_buckets, kind_of, objects};
pub use ops::{Admin, Batches, DirectoryEntry, FileLocation, FileLocks, Statfs, Status, Warmed, Whence};
pub use store::{COMMIT, Cause, StoreRequest, Timestamp, share_budget, work_for};
pub use volume::{Mapping, Naming, Placement, VolumeRecord};
