//! The interface of object stores that the rest of Tenon uses, and its words.
//!
//! Owns the types [`ObjectKey`], [`ETag`], [`ObjectRef`] and [`Precondition`], the traits [`ObjectStore`] and
//! [`Buckets`], the store in memory, the buckets of several accounts, the wrappers that inject faults and latency or
//! trace requests, and the conformance suite that every implementation runs. Also owns what stores share: clocks and
//! random numbers, the mapping of keys to file names, locks by key, the retry budget, and the
//! operation that a request is made for.
//!
//! Out of scope: networks and disks, which the crates `store-s3` and `store-dir` reach; inodes and directories;
//! normalising keys; reading the clock or drawing random numbers other than through [`Clock`] and [`Entropy`].
//!
//! Invariants: a key is stored and listed byte for byte; a listing is in byte order; [`StoreError::is_retryable`]
//! tells a caller whether to repeat the call; after a `put` that failed the key has the old object or, if only the
//! response was lost, the whole new one.

mod blocking;
mod cause;
mod clock;
mod error;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod hex;
mod key;
mod keyed_locks;
mod object;
mod object_lock;
mod object_store;
mod outcome;
mod pages;
mod payload;
pub mod retry_budget;
mod supervise;

pub mod accounts;
pub mod bucket_name;
pub mod byte_range;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod listing;
pub mod memory;
pub mod names;
pub mod part_number;
pub mod version_id;
pub mod wrap;

pub use blocking::blocking;
pub use cause::{
    COMMIT, Cause, StoreRequest, current_cause, measure_commit, report_request, step_for, work_for,
};
pub use clock::{Clock, Entropy, SystemClock, Timestamp};
pub use error::{Result, StoreError};
pub use hex::{hex, number_of_hex, push_hex, unhex};
pub use key::{ETag, InvalidKey, KEY_BYTES_MAX, ObjectKey};
pub use keyed_locks::{KeyLock, KeyedLocks};
pub use object::{
    Attributes, Deleted, ListEntry, ListPage, ListRequest, ListedObject, NULL_VERSION, Object, ObjectMeta,
    ObjectRef, Part, Precondition, Tags, Upload, Version, VersionEntry, VersionId, Versioning,
};
pub use object_lock::{LOCK_HOLD, LOCK_MODE, LOCK_UNTIL, Lock, LockMode, Retention};
pub use object_store::{
    Buckets, CompleteOptions, CopyOptions, GetOptions, ListVersions, MakePartNote, Multipart, ObjectStore,
    ObjectWriter, PutOptions, Removal, Settings, Uploads, Versions, rename_by_copy,
};
pub use outcome::Outcome;
pub use pages::Pages;
pub use payload::Payload;
pub use retry_budget::share_budget;
pub use supervise::supervise;
