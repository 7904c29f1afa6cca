//! Places of documents that belong to buckets.

use store::{ObjectKey, Timestamp};

/// Where a document is stored.
pub(crate) struct Document {
    pub(super) key: ObjectKey,
    /// Key by the directory's name, as earlier versions stored the document, and the directory's creation time.
    pub(super) before: Option<(ObjectKey, Timestamp)>,
}

impl Document {
    /// Returns the document under a key that never changed.
    pub(super) fn at(key: ObjectKey) -> Self {
        Self { key, before: None }
    }
}
