//! Synchronization of a volume named by path with its bucket: listings, changes by other clients, attributes in headers,
//! conflicts, renames, mounts on other machines.

pub(crate) mod changes;
pub(crate) mod conflicts;
pub(crate) mod directories;
pub(crate) mod discovery;
pub(crate) mod evict;
pub(crate) mod exports;
pub(crate) mod headers;
pub(crate) mod hints;
pub(crate) mod imports;
pub(crate) mod lister;
pub(crate) mod metadata;
pub(crate) mod mover;
pub(crate) mod observe;
pub(crate) mod path_locks;
pub(crate) mod reconcile;
pub(crate) mod sharing;
pub(crate) mod sort_keys;
