//! Conflicts of moves: another client has stored an object at a move's target, or has replaced the object at its
//! source. The [`ConflictCallbacks`](crate::conflict::ConflictCallbacks) decide which object keeps the key.
//!
//! Invariants: our object is deleted at its old key, and theirs is replaced, only after a copy was made and the callbacks have
//! recorded the copy. Theirs is replaced under a condition on exactly the object that was found.

use super::executor::Executor;
use super::resolved_conflicts::{CopiedObject, SourceObject};
use crate::conflict::{KeyConflict, Outcome, Resolution, require_other_key};
use store::{CopyOptions, ObjectKey, ObjectRef, ObjectStore as _, Precondition, Result, StoreError};

/// Maximum number of attempts to replace another client's object at the target key, if that client changes it between
/// lookup and copy each time. Then this attempt at the move fails, and another one follows later.
const ATTEMPTS_MAX: usize = 5;

impl Executor {
    /// Resolves a conflict about a target key and remembers the resolution until our object is deleted at its old
    /// key.
    pub(super) async fn resolve_conflict(
        &self,
        source: &SourceObject,
        to: &ObjectKey,
        theirs: ObjectRef,
    ) -> Result<CopiedObject> {
        let copied = self.resolve_new_conflict(source, to, theirs).await?;
        if copied.kept.is_some() {
            self.resolved.remember(&copied);
        }
        Ok(copied)
    }

    /// Resolves the conflict of a moving object with another object at its target, as the callbacks decide.
    async fn resolve_new_conflict(
        &self,
        source: &SourceObject,
        to: &ObjectKey,
        mut theirs: ObjectRef,
    ) -> Result<CopiedObject> {
        for _ in 0..ATTEMPTS_MAX {
            let conflict = KeyConflict { key: to.clone(), theirs: Some(theirs.clone()), is_complete: true };
            let kept = match self.decisions.decide(&conflict) {
                Resolution::OursTo(kept_key) => {
                    require_other_key(to, &kept_key)?;
                    self.keep_theirs(source, conflict, &kept_key).await?;
                    Some(kept_key)
                }
                Resolution::TheirsTo(kept_key) => {
                    require_other_key(to, &kept_key)?;
                    self.replace_theirs(source, conflict, &theirs, &kept_key).await?.then_some(kept_key)
                }
            };
            if kept.is_some() {
                return Ok(CopiedObject::new(source, to, kept));
            }
            match self.store.find(to).await? {
                Some(found) => theirs = found.object,
                None => {
                    self.copy_object(source, to, source.options(Precondition::Absent)).await?;
                    return Ok(CopiedObject::new(source, to, None));
                }
            }
        }
        Err(StoreError::Unavailable(format!("'{to}' keeps being changed by another client")))
    }

    /// Records the outcome of a conflict. If that fails the copy is deleted; the next attempt makes a new one.
    async fn note_copy(&self, outcome: Outcome, copy: &ObjectRef) -> Result<()> {
        let noted = self.decisions.record(outcome).await;
        if noted.is_err() {
            self.store.delete(&copy.key, Precondition::Matches(copy.etag.clone())).await.ok();
        }
        noted
    }

    /// Keeps their object under the key and stores ours under `kept_key`.
    async fn keep_theirs(
        &self,
        source: &SourceObject,
        conflict: KeyConflict,
        kept_key: &ObjectKey,
    ) -> Result<()> {
        let ours = self.store.copy(&source.object, kept_key, source.options(Precondition::None)).await?;
        let (key, theirs) = (conflict.key.clone(), conflict.theirs.clone());
        self.note_copy(Outcome { conflict, ours: Some(ours.clone()), theirs }, &ours).await?;
        tracing::warn!(from = %source.object.key, %key, kept = %kept_key, "the new name of a renamed object has another client's object: theirs keeps the name, ours is kept under another key");
        Ok(())
    }

    /// Replaces their object with ours, after copying theirs to `kept_key`. Returns false if their object has changed
    /// by now.
    async fn replace_theirs(
        &self,
        source: &SourceObject,
        conflict: KeyConflict,
        theirs: &ObjectRef,
        kept_key: &ObjectKey,
    ) -> Result<bool> {
        let copy = match self.store.copy(theirs, kept_key, CopyOptions::default()).await {
            Ok(copy) => copy,
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let key = conflict.key.clone();
        let outcome = Outcome { conflict, ours: None, theirs: Some(copy.clone()) };
        self.note_copy(outcome.clone(), &copy).await?;
        let unchanged = Precondition::Matches(theirs.etag.clone());
        match self.copy_object(source, &key, source.options(unchanged)).await {
            Ok(ours) => {
                tracing::warn!(from = %source.object.key, %key, kept = %kept_key, "the new name of a renamed object had another client's object: ours replaced it, theirs is kept under another key");
                self.decisions.record(Outcome { ours: Some(ours), ..outcome }).await?;
                Ok(true)
            }
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                self.store.delete(&copy.key, Precondition::None).await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Records that our object is lost: another client replaced it before it moved.
    pub(super) async fn note_lost(&self, ours: &ObjectRef, theirs: ObjectRef) -> Result<()> {
        let conflict =
            KeyConflict { key: ours.key.clone(), theirs: Some(theirs.clone()), is_complete: false };
        self.decisions.record(Outcome { conflict, ours: None, theirs: Some(theirs) }).await
    }
}
