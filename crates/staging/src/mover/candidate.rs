//! Physical keys at which the object visible under a key may be stored.

use store::{ETag, ObjectKey, ObjectMeta};

/// A physical key at which an object may be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) key: ObjectKey,
    /// The move that takes the object from this key; `None`: the key is also its logical key.
    pub(super) by_move: Option<u64>,
    /// The etag that the object must have there.
    pub(super) etag: Option<ETag>,
    /// Etag of the object that a move replaces at this key. Callers no longer see that object.
    pub(super) replaced: Option<ETag>,
}

impl Candidate {
    /// Returns whether the object found at the key is the one that is being replaced.
    pub(super) fn is_replaced(&self, found: &ObjectMeta) -> bool {
        self.replaced.as_ref() == Some(&found.object.etag)
    }
}
