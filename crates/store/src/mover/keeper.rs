//! The seam to a namespace, which also says where objects are.

use super::Result;
use crate::writeback::Judge;
use crate::{ETag, ObjectKey, ObjectMeta, ObjectRef, StoreError};
use futures_util::future::BoxFuture;
use std::fmt;

/// Why a caller of [`Mover::rename_object`](super::Mover::rename_object) could not note the new name.
pub trait NamingError: From<StoreError> {
    /// Whether the name may have been noted all the same, as the disk failed in between. The object moves then: names that
    /// survive without their objects could not be put right.
    fn is_uncertain(&self) -> bool;
}

impl NamingError for StoreError {
    fn is_uncertain(&self) -> bool {
        false
    }
}

/// What the mover asks and tells a namespace. No call may wait for an object that the mover moves.
#[expect(clippy::type_complexity, reason = "each call is said once, where it is described")]
pub struct Keeper {
    /// Has what must survive the loss of power before anything moves survive it.
    pub make_safe: Box<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>,
    /// Whether an object with another tag than when it was renamed is still the one that shows under a key: new headers may
    /// have been stored and nobody heard of it.
    pub knows: Box<dyn Fn(&ObjectKey, &ObjectMeta) -> bool + Send + Sync>,
    /// Hears of an object that has arrived under a key with another tag, the second, than it had; from then on it is shown with
    /// that.
    pub has_arrived: Box<dyn Fn(&ObjectKey, &ETag, &ETag) + Send + Sync>,
    /// Hears of an object that has arrived elsewhere and is gone from its key here: older looks may still show it.
    pub has_left: Box<dyn Fn(&ObjectRef) + Send + Sync>,
    /// Hears of a rename, from a key to a key, that came to nothing: somebody else changed the object before it moved.
    pub is_void: Box<dyn Fn(&ObjectKey, &ObjectKey) + Send + Sync>,
    /// Says whose object has a key that both want, and notes what became of the other.
    pub judge: Judge,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}
