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
    /// Etags of the objects that moves replace or delete at this key. Callers no longer see these objects.
    pub(super) replaced: Vec<ETag>,
}

impl Candidate {
    /// Returns whether the object found at the key is being replaced or deleted.
    pub(super) fn is_replaced(&self, found: &ObjectMeta) -> bool {
        self.replaced.contains(&found.object.etag)
    }
}
