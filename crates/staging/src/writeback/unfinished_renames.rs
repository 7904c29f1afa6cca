//! Renames of which the log has the copy at the new key, and not yet the deletion at the old one.

use std::collections::BTreeMap;
use store::{ObjectKey, ObjectRef};

/// A rename that a kill has interrupted, or that is in progress. Whether it takes effect is for the owner of the names to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedRename {
    /// The object at its old key.
    pub from: ObjectRef,
    /// Its copy at the new key.
    pub copy: ObjectRef,
}

/// The unfinished renames, by the old key.
#[derive(Debug, Default)]
pub(super) struct UnfinishedRenames(BTreeMap<ObjectKey, UnfinishedRename>);

impl UnfinishedRenames {
    /// Notes that an object was copied to its new key.
    pub(super) fn begin(&mut self, from: ObjectRef, copy: ObjectRef) {
        self.0.insert(from.key.clone(), UnfinishedRename { from, copy });
    }

    /// Notes that the object at a key was deleted or replaced: a rename from there is over.
    pub(super) fn end(&mut self, key: &ObjectKey) {
        self.0.remove(key);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &UnfinishedRename> {
        self.0.values()
    }
}
