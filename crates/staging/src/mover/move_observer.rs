//! The interface to a namespace that records where objects are, as the mover does.

use crate::conflict::ConflictCallbacks;
use futures_util::future::BoxFuture;
use std::fmt;
use store::{ETag, ObjectKey, ObjectMeta, ObjectRef, Result, StoreError};

/// Error of a caller of [`Mover::rename_object`](super::Mover::rename_object) that could not commit the new name.
pub trait NamingError: From<StoreError> {
    /// Returns whether the name may have been committed all the same, because the disk failed in between. The object
    /// moves then: names that survive without their objects could not be repaired.
    fn is_uncertain(&self) -> bool;
}

impl NamingError for StoreError {
    fn is_uncertain(&self) -> bool {
        false
    }
}

/// Callbacks of the mover into a namespace. No call may wait for an object that the mover moves.
#[expect(clippy::type_complexity, reason = "each callback has one type, next to its description")]
pub struct MoveObserver {
    /// Makes durable whatever must survive the loss of power before anything moves.
    pub make_safe: Box<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>,
    /// Returns whether an object whose etag differs from the one it had when it was renamed is still the object
    /// visible under a key: new headers may have been stored and their answer lost.
    pub knows: Box<dyn Fn(&ObjectKey, &ObjectMeta) -> bool + Send + Sync>,
    /// Called when an object has arrived under a key with another etag. The arguments are the key, the etag that the
    /// object had and the etag that it has and is shown with from now on. Returns whether the namespace had
    /// this object by this key.
    pub has_arrived: Box<dyn Fn(&ObjectKey, &ETag, &ETag) -> bool + Send + Sync>,
    /// Called when an object has arrived at its new key and was deleted at the given one, where earlier listings and
    /// HEADs may still show it.
    pub has_left: Box<dyn Fn(&ObjectRef) + Send + Sync>,
    /// Called when a rename, from a key to a key, had no effect because another client changed the object before it
    /// moved.
    pub is_void: Box<dyn Fn(&ObjectKey, &ObjectKey) + Send + Sync>,
    /// Decides conflicts about a key, and records where the other object is kept.
    pub conflicts: ConflictCallbacks,
}

impl fmt::Debug for MoveObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MoveObserver")
    }
}
