//! Somebody else has stored an object where one of ours is to go, or in place of ours before it went: a judge says whose
//! has the key.
//!
//! Invariants: ours goes from where it lies, and theirs is replaced, only after a copy of it was made and the judge has
//! noted that; theirs is replaced under a condition on exactly what was seen.

use super::Mover;
use super::execute::{Copied, Source};
use crate::writeback::{Outcome, Overtaken, Way};
use crate::{CopyOptions, ObjectKey, ObjectRef, ObjectStore as _, Precondition, Result, StoreError};
use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};

/// So often somebody else's object is replaced again by others before ours gives way.
const ATTEMPTS_MAX: usize = 5;

impl Mover {
    /// One of two objects gets the key.
    pub(super) async fn settle_overtaken(
        &self,
        source: &Source,
        to: &ObjectKey,
        theirs: ObjectRef,
    ) -> Result<Copied> {
        let settled = self.settle_anew(source, to, theirs).await?;
        if settled.kept.is_some() {
            self.overtaken().insert(source.object.key.clone(), settled.clone());
        }
        Ok(settled)
    }

    /// What became of an object that met another, and is still where it was.
    pub(super) fn was_overtaken(&self, source: &Source, to: &ObjectKey) -> Option<Copied> {
        let known = self.overtaken().get(&source.object.key).cloned();
        known.filter(|known| known.from.etag == source.object.etag && known.to == *to)
    }

    /// An object that met another has gone where it was.
    pub(super) fn has_left(&self, from: &ObjectRef) {
        self.overtaken().remove(&from.key);
    }

    fn overtaken(&self) -> MutexGuard<'_, HashMap<ObjectKey, Copied>> {
        self.overtaken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn settle_anew(&self, source: &Source, to: &ObjectKey, mut theirs: ObjectRef) -> Result<Copied> {
        for _ in 0..ATTEMPTS_MAX {
            let overtaken = Overtaken { key: to.clone(), theirs: Some(theirs.clone()), is_complete: true };
            let kept = match self.way(&overtaken) {
                Way::OursTo(there) => {
                    self.give_way(source, overtaken, &there).await?;
                    Some(there)
                }
                Way::TheirsTo(there) => {
                    self.replace(source, overtaken, &theirs, &there).await?.then_some(there)
                }
            };
            if kept.is_some() {
                return Ok(Copied::new(source, to, kept));
            }
            match self.store.find(to).await? {
                Some(found) => theirs = found.object,
                None => {
                    self.copy_if(source, to, Precondition::Absent).await?;
                    return Ok(Copied::new(source, to, None));
                }
            }
        }
        Err(StoreError::Unavailable(format!("'{to}' is changed all the time")))
    }

    fn way(&self, overtaken: &Overtaken) -> Way {
        match self.keeper.get() {
            Some(keeper) => (keeper.judge.way)(overtaken),
            None => Way::OursTo((self.options.lost)(&overtaken.key, self.entropy.next_u64())),
        }
    }

    async fn note(&self, outcome: Outcome) -> Result<()> {
        match self.keeper.get() {
            Some(keeper) => (keeper.judge.note)(outcome).await,
            None => Ok(()),
        }
    }

    /// A copy of which nobody knows is made anew by the next attempt.
    async fn note_copy(&self, outcome: Outcome, copy: &ObjectRef) -> Result<()> {
        let noted = self.note(outcome).await;
        if noted.is_err() {
            self.store.delete(&copy.key, Precondition::Matches(copy.etag.clone())).await.ok();
        }
        noted
    }

    /// Theirs stays, and ours goes where it can be found.
    async fn give_way(&self, source: &Source, overtaken: Overtaken, there: &ObjectKey) -> Result<()> {
        let ours = self.store.copy(&source.object, there, source.options(Precondition::None)).await?;
        let (key, theirs) = (overtaken.key.clone(), overtaken.theirs.clone());
        self.note_copy(Outcome { overtaken, ours: Some(ours.clone()), theirs }, &ours).await?;
        tracing::warn!(from = %source.object.key, %key, kept = %there, "somebody else stored an object where ours was renamed to: the bucket's stays");
        Ok(())
    }

    /// Ours replaces exactly theirs, which is copied before. False: it is another one by now.
    async fn replace(
        &self,
        source: &Source,
        overtaken: Overtaken,
        theirs: &ObjectRef,
        there: &ObjectKey,
    ) -> Result<bool> {
        let copy = match self.store.copy(theirs, there, CopyOptions::default()).await {
            Ok(copy) => copy,
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let key = overtaken.key.clone();
        let outcome = Outcome { overtaken, ours: None, theirs: Some(copy.clone()) };
        self.note_copy(outcome.clone(), &copy).await?;
        match self.copy_if(source, &key, Precondition::Matches(theirs.etag.clone())).await {
            Ok(ours) => {
                tracing::warn!(from = %source.object.key, %key, kept = %there, "somebody else stored an object where ours was renamed to: ours replaced it");
                self.note(Outcome { ours: Some(ours), ..outcome }).await?;
                Ok(true)
            }
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                self.store.delete(&copy.key, Precondition::None).await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Nothing is left of an object of ours, in whose place somebody else has stored another before it moved.
    pub(super) async fn note_void(&self, ours: &ObjectRef, theirs: ObjectRef) -> Result<()> {
        let overtaken = Overtaken { key: ours.key.clone(), theirs: Some(theirs.clone()), is_complete: false };
        self.note(Outcome { overtaken, ours: None, theirs: Some(theirs) }).await
    }

    /// Everybody sees from now on what has these keys.
    pub(super) fn tell_settled(&self, keys: [&ObjectKey; 2]) {
        if let Some(keeper) = self.keeper.get() {
            keys.into_iter().for_each(|key| (keeper.judge.settled)(key));
        }
    }
}
