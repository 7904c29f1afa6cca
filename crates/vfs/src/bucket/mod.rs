//! What follows the paths of a bucket: listings, what other clients change, attributes in headers, conflicts, renames, other machines.

pub(crate) mod aside;
pub(crate) mod changes;
pub(crate) mod conflicts;
pub(crate) mod directories;
pub(crate) mod evict;
pub(crate) mod exports;
pub(crate) mod headers;
pub(crate) mod hearing;
pub(crate) mod imports;
pub(crate) mod learn;
pub(crate) mod lister;
pub(crate) mod metadata;
pub(crate) mod moving;
pub(crate) mod observe;
pub(crate) mod path_locks;
pub(crate) mod reconcile;
pub(crate) mod room;
pub(crate) mod sharing;
pub(crate) mod texts;
