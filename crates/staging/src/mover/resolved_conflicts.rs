//! Objects on their way, and the conflicts about them that are resolved.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::{CopyOptions, ObjectKey, ObjectMeta, ObjectRef, Precondition};

/// An object that exists at its new key and still has to be deleted at its old key.
#[derive(Debug, Clone)]
pub(super) struct CopiedObject {
    pub(super) from: ObjectRef,
    pub(super) to: ObjectKey,
    /// The key at which the loser of a conflict is kept.
    pub(super) kept: Option<ObjectKey>,
}

impl CopiedObject {
    pub(super) fn new(source: &SourceObject, to: &ObjectKey, kept: Option<ObjectKey>) -> Self {
        Self { from: source.object.clone(), to: to.clone(), kept }
    }
}

/// An object to copy, and its size if known.
#[derive(Debug, Clone)]
pub(super) struct SourceObject {
    pub(super) object: ObjectRef,
    pub(super) size_bytes: Option<u64>,
}

impl SourceObject {
    /// Returns options that copy the object unchanged.
    pub(super) fn options(&self, precondition: Precondition) -> CopyOptions {
        CopyOptions { precondition, size_bytes: self.size_bytes, ..CopyOptions::default() }
    }
}

impl From<ObjectMeta> for SourceObject {
    fn from(found: ObjectMeta) -> Self {
        Self { object: found.object, size_bytes: Some(found.size_bytes) }
    }
}

/// Resolved conflicts whose object still exists at its old key, by that physical key.
#[derive(Debug, Default)]
pub(super) struct ResolvedConflicts(Mutex<HashMap<ObjectKey, CopiedObject>>);

impl ResolvedConflicts {
    /// Remembers a resolution until [`ResolvedConflicts::forget`].
    pub(super) fn remember(&self, copied: &CopiedObject) {
        self.all().insert(copied.from.key.clone(), copied.clone());
    }

    /// Returns the remembered resolution for an object and a target, so that a retry does not resolve the conflict
    /// again; `None` if there is none.
    pub(super) fn find(&self, source: &SourceObject, to: &ObjectKey) -> Option<CopiedObject> {
        let known = self.all().get(&source.object.key).cloned();
        known.filter(|known| known.from.etag == source.object.etag && known.to == *to)
    }

    /// Forgets a conflict whose object was deleted at its old key.
    pub(super) fn forget(&self, from: &ObjectRef) {
        self.all().remove(&from.key);
    }

    /// Returns the copies of resolved conflicts, by the key of their source.
    fn all(&self) -> MutexGuard<'_, HashMap<ObjectKey, CopiedObject>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
