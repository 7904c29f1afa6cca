//! The file system as a library: files over the objects of one bucket.
//!
//! Owns open files, the read and write paths, what is known of directories, and the import of objects that others
//! wrote. Its calls are POSIX's; a front end (`fuse`) hands them on.
//!
//! Refuses: to know FUSE or HTTP; to keep names anywhere but in the namespace tables (`meta`); to change the
//! namespace for a foreign object anywhere but in `reconcile`.
//!
//! Invariants: data is stored before the metadata that names it; a failed `close` or `fsync` says so and keeps the
//! writes while the file is open; memory stays within [`Config::memory_limit_bytes`] whatever the bucket's size;
//! what was changed here is not undone by an older look at the bucket.

mod access_times;
mod aside;
mod attr;
mod audit;
mod budget;
mod changes;
mod config;
mod conflicts;
mod derived;
mod directories;
mod discards;
mod error;
mod evict;
mod exports;
mod filesystem;
mod garbage;
mod handles;
mod headers;
mod hearing;
mod imports;
mod invalidation;
mod layout;
mod learn;
mod lister;
mod locks;
mod metadata;
mod moments;
mod moving;
mod objects;
mod observe;
mod open_file;
mod ops;
mod path_locks;
mod pin;
mod positions;
mod publishing;
mod quotas;
mod ranges;
mod read;
mod reconcile;
mod references;
mod room;
mod sharing;
mod slab;
mod texts;
mod turns;
mod version;
mod volume;
mod write;

pub use access_times::Atime;
pub use attr::{Attr, Caller, Changes, Time};
pub use audit::Audit;
pub use config::{AttributeSource, Config, Parts};
pub use conflicts::{Conflict, ConflictPolicy, Keep, Side};
pub use derived::{Asked, Derived, DerivedEntry, DerivedFile, DerivedStale, ListingCache, Placed};
pub use error::{Error, Result};
pub use filesystem::Filesystem;
pub use garbage::unused_content;
pub use handles::{Handle, Opened};
pub use hearing::{Hint, Says};
pub use invalidation::{Invalidation, Mark, News};
pub use layout::{LOST_AND_FOUND, RESERVED, is_shared, leases, lost_key};
pub use lister::ListerStatus;
pub use locks::{Lock, LockKind, LockOwner, Locks};
pub use meta::{Ino, Kind, Limits, Moment, Quota, Usage};
pub use objects::{DirectoryBuckets, Objects};
pub use ops::{Listed, Located, Statfs, Status, Whence};
pub use room::{MeasureRoom, Room};
pub use store::{Timestamp, share_budget};
pub use volume::{Mapping, Naming, Placement, VolumeRecord};
