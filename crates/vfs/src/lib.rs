//! The file system as a library: files over the objects of one bucket.
//!
//! Owns open files, the read and write paths, the cached state of directories, and the import of objects that other clients
//! wrote. Its calls follow POSIX; a front end (`fuse`) translates requests into them.
//!
//! Does not know FUSE or HTTP, keeps names only in the namespace tables (`meta`), and, in a volume named by path,
//! changes the namespace for a foreign object only in `reconcile`.
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
mod volume;
mod volumes;

pub use attr::{Attr, Caller, Changes, Time};
pub use bucket::conflicts::resolve::ConflictResolver;
pub use bucket::conflicts::{Conflict, ConflictPolicy, ConflictRecords, Keep, Side};
pub use bucket::hints::{Hint, Hints, ReportedState};
pub use bucket::lister::ListerStatus;
pub use bucket::mover::Moves;
pub use config::{Atime, AttributeSource, Config, Dependencies};
pub use content::audit::Audit;
pub use content::disk_space::{DiskSpace, MeasureDiskSpace};
pub use content::export_mark::ExportMark;
pub use content::garbage::unused_content;
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
pub use layout::{LOST_AND_FOUND, RESERVED, is_shared, leases, lost_key, metadata_backups};
pub use meta::{Ino, Kind, Limits, Moment, Quota, Usage};
pub use names::handles::{Handle, Opened};
pub use names::locks::{Lock, LockKind, LockOwner, Locks};
pub use objects::{directory_buckets, objects};
pub use ops::{Admin, DirectoryEntry, FileLocation, Statfs, Status, Whence};
pub use store::{Timestamp, share_budget};
pub use volume::{Mapping, Naming, Placement, VolumeRecord};
