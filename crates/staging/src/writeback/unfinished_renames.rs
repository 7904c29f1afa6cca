//! Renames of which the log has the copy at the new key, and not yet the deletion at the old one.

use std::collections::BTreeMap;
use store::{ETag, ObjectKey, ObjectRef};

/// A rename that a kill has interrupted, or that is in progress. Whether it takes effect is for the owner of the names to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedRename {
    /// The object at its old key, with the etag that the log shows.
    pub from: ObjectRef,
    /// The etag of the old object in the bucket, if it was uploaded already: the names may know it by that.
    pub from_uploaded: Option<ETag>,
    /// Its copy at the new key, with the etag that the log gave it.
    pub copy: ObjectRef,
    /// The etag of the copy in the bucket, if it was uploaded already.
    pub copy_uploaded: Option<ETag>,
}

impl UnfinishedRename {
    /// Returns the etags by which the names may know the old object.
    pub fn old_etags(&self) -> impl Iterator<Item = &ETag> {
        [&self.from.etag].into_iter().chain(&self.from_uploaded)
    }

    /// Returns whether the copy has, or had, this etag.
    pub fn has_copy(&self, etag: &ETag) -> bool {
        self.copy.etag == *etag || self.copy_uploaded.as_ref() == Some(etag)
    }
}

/// The unfinished renames, by the old key: the old object and its copy.
#[derive(Debug, Default)]
pub(super) struct UnfinishedRenames(BTreeMap<ObjectKey, (ObjectRef, ObjectRef)>);

impl UnfinishedRenames {
    /// Notes that an object was copied to its new key.
    pub(super) fn begin(&mut self, from: ObjectRef, copy: ObjectRef) {
        self.0.insert(from.key.clone(), (from, copy));
    }

    /// Notes that the object at a key was deleted or replaced: renames from there and to there are over.
    pub(super) fn end(&mut self, key: &ObjectKey) {
        self.0.retain(|from, (_, copy)| from != key && copy.key != *key);
    }

    /// Returns the old objects and their copies.
    pub(super) fn all(&self) -> Vec<(ObjectRef, ObjectRef)> {
        self.0.values().cloned().collect()
    }
}
