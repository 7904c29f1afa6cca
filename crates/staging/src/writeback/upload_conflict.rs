//! Conflicts of uploads: the bucket has another object under a key than the change was made over. It may be the
//! change itself, uploaded by an attempt whose answer was lost; otherwise the [`ConflictCallbacks`] decide which object keeps
//! the key.
//!
//! Invariants: another client's object is replaced only under a condition on the object that was found, after it was
//! copied and the callbacks have recorded the copy. If bytes that a change is made of are gone, zeros replace them, and
//! such an object never takes a key that another client's object has.

use super::Writeback;
use super::pending::{Change, PendingObject};
use super::upload_result::UploadResult;
use crate::conflict::{ConflictCallbacks, KeyConflict, Outcome, Resolution, require_other_key};
use store::{CopyOptions, ObjectKey, ObjectMeta, ObjectRef, Precondition, Result, StoreError};

/// Attempts to replace their object, while they keep changing it, before the upload fails.
const ATTEMPTS_MAX: usize = 5;

impl Writeback {
    /// Makes conflicts wait until [`Writeback::set_conflict_callbacks`] is called.
    pub fn await_conflict_callbacks(&self) {
        self.conflicts.await_callbacks();
    }

    /// Sets the callbacks that decide conflicts. Conflicts that wait for the callbacks continue.
    pub fn set_conflict_callbacks(&self, callbacks: ConflictCallbacks) {
        self.conflicts.set_callbacks(callbacks);
    }

    /// Handles an upload that found something else in the bucket than the change was made over.
    pub(super) async fn resolve_conflict(&self, key: &ObjectKey, change: &Change) -> Result<UploadResult> {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.bucket.store.find(key).await?;
            if self.bucket.is_ours(found.as_ref(), change.object.as_deref()).await? {
                return Ok(UploadResult::Uploaded(found.map(|found| found.object.etag)));
            }
            if self.is_earlier_of_ours(change, found.as_ref()).await? {
                // An earlier change of ours was uploaded, and the process ended before the log recorded that.
                match self.bucket.apply(key, change, condition_on(found.as_ref())).await {
                    Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {}
                    applied => return applied.map(UploadResult::Uploaded),
                }
                let Some(object) = &change.object else { continue };
                if self.bucket.is_complete(object).await? {
                    continue;
                }
            }
            let may_be_ours = found.as_ref().is_some_and(|found| may_be_earlier_of_ours(change, found));
            let kept = object_to_keep(key, change);
            // A deletion or a directory marker has no bytes to lose: another client's object keeps the key.
            if kept.is_none() && !may_be_ours {
                return Ok(UploadResult::Aside);
            }
            if self.conflicts.are_callbacks_awaited() {
                return Err(StoreError::Unavailable(
                    "a conflict waits until it can be decided which object stays".into(),
                ));
            }
            let is_complete = match kept {
                Some(object) => self.bucket.is_complete(object).await?,
                None => true,
            };
            let theirs = found.as_ref().map(|found| found.object.clone());
            let conflict = KeyConflict { key: key.clone(), theirs, is_complete };
            let decided = match is_complete && may_be_ours {
                // The object is kept, because it may be another client's.
                true => Resolution::TheirsTo(self.conflicts.lost_key(key)),
                false => self.conflicts.decide(&conflict),
            };
            match (decided, kept) {
                (Resolution::OursTo(kept_key), Some(object)) => {
                    return self.store_aside(conflict, object, &kept_key).await;
                }
                (Resolution::OursTo(_), None) => return Ok(UploadResult::Aside),
                (Resolution::TheirsTo(kept_key), _) => {
                    if let Some(resolution) = self.replace_theirs(conflict, change, &kept_key).await? {
                        return Ok(resolution);
                    }
                }
            }
        }
        Err(StoreError::PreconditionFailed(key.clone()))
    }

    /// Returns whether the object found is one that an earlier change of the same key left there.
    async fn is_earlier_of_ours(&self, change: &Change, found: Option<&ObjectMeta>) -> Result<bool> {
        for earlier in change.earlier_attempts() {
            if self.bucket.is_surely_ours(found, earlier).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Stores the object of a refused change under another key, as after a conflict.
    pub(super) async fn set_aside_refused(
        &self,
        key: &ObjectKey,
        change: &Change,
        refusal: StoreError,
    ) -> Result<UploadResult> {
        let Some(object) = object_to_keep(key, change) else {
            tracing::error!(%key, %refusal, "the bucket still refuses a deletion or a directory marker after several attempts; the change is dropped");
            return Ok(UploadResult::Aside);
        };
        if self.conflicts.are_callbacks_awaited() {
            return Err(refusal);
        }
        // If the bucket cannot be read, nothing under its key is touched all the same.
        let theirs = self.bucket.store.find(key).await.ok().flatten().map(|found| found.object);
        let is_complete = self.bucket.is_complete(object).await?;
        let kept_key = self.conflicts.lost_key(key);
        let conflict = KeyConflict { key: key.clone(), theirs, is_complete };
        let stored = self.store_aside(conflict, object, &kept_key).await;
        if stored.is_ok() {
            tracing::error!(%key, kept = %kept_key, %refusal, "the bucket still refuses an object after several attempts; what could be kept of it is under another key");
        }
        // A change that is refused under the other key too stays in the log.
        stored.map_err(|_| refusal)
    }

    /// Keeps their object under the key and stores ours under `kept_key`.
    async fn store_aside(
        &self,
        conflict: KeyConflict,
        object: &PendingObject,
        kept_key: &ObjectKey,
    ) -> Result<UploadResult> {
        if !conflict.is_complete && !object.has_log_bytes() {
            tracing::warn!(key = %conflict.key, "an object is not stored: the bucket no longer has the object that it is a copy of, and the write-back log has none of its bytes");
            return Ok(UploadResult::Aside);
        }
        require_other_key(&conflict.key, kept_key)?;
        let ours = match conflict.is_complete {
            true => self.bucket.store_object(kept_key, object, Precondition::None).await?,
            false => self.bucket.store_with_gaps(kept_key, object).await?,
        };
        let key = conflict.key.clone();
        let theirs = conflict.theirs.clone();
        self.conflicts.record(Outcome { conflict, ours: Some(ours), theirs }).await?;
        tracing::warn!(%key, kept = %kept_key, "an object could not be stored under its key, where the bucket's object stays if there is one; ours is kept under another key");
        Ok(UploadResult::Aside)
    }

    /// Replaces their object with ours, after copying theirs to `kept_key`. `None`: their object has changed by now.
    async fn replace_theirs(
        &self,
        conflict: KeyConflict,
        change: &Change,
        kept_key: &ObjectKey,
    ) -> Result<Option<UploadResult>> {
        if conflict.theirs.is_some() {
            require_other_key(&conflict.key, kept_key)?;
        }
        let copy = match &conflict.theirs {
            None => None,
            Some(theirs) => match self.bucket.store.copy(theirs, kept_key, CopyOptions::default()).await {
                Ok(copy) => Some(copy),
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let outcome = Outcome { conflict, ours: None, theirs: copy };
        self.conflicts.record(outcome.clone()).await?;
        let key = outcome.conflict.key.clone();
        let base = outcome.conflict.theirs.as_ref();
        let base = base.map_or(Precondition::Absent, |object| Precondition::Matches(object.etag.clone()));
        match self.bucket.apply(&key, change, base).await {
            Ok(etag) => {
                tracing::warn!(%key, "the bucket was not in the state that our change was based on: our change replaced it, and an object that was there is kept under another key");
                let ours = etag.clone().map(|etag| ObjectRef::new(key, etag));
                self.conflicts.record(Outcome { ours, ..outcome }).await?;
                Ok(Some(UploadResult::Uploaded(etag)))
            }
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                if let Some(copy) = outcome.theirs {
                    self.bucket.store.delete(&copy.key, Precondition::None).await?;
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns the object of a change if its bytes must be kept; `None` for a deletion and for a directory marker, which
/// has no bytes.
fn object_to_keep<'c>(key: &ObjectKey, change: &'c Change) -> Option<&'c PendingObject> {
    change.object.as_deref().filter(|object| !(key.as_bytes().ends_with(b"/") && object.size_bytes() == 0))
}

/// Returns whether the object found may be the result of an earlier change that copied the object of the key onto itself with other
/// headers. Such a copy has replaced the bytes that it was made of, so nothing proves that it is ours.
fn may_be_earlier_of_ours(change: &Change, found: &ObjectMeta) -> bool {
    let is_copy_onto_itself = |earlier: &PendingObject| {
        earlier.was_sent() && earlier.size_bytes() > 0 && earlier.reuses_only(&found.object.key)
    };
    change.earlier_attempts().flatten().any(|earlier| is_copy_onto_itself(earlier) && earlier.is_like(found))
}

/// Returns the condition that the bucket still has what was found.
fn condition_on(found: Option<&ObjectMeta>) -> Precondition {
    found.map_or(Precondition::Absent, |found| Precondition::Matches(found.object.etag.clone()))
}
