//! Conflicts of uploads: the bucket has another object under a key than the change was made over. It may be the
//! change itself, uploaded by an attempt whose answer was lost; otherwise the [`Judge`] decides which object keeps
//! the key.
//!
//! Invariants: another client's object is replaced only under a condition on the object that was found, after it was
//! copied and the judge has recorded the copy. If bytes that a change is made of are gone, zeros replace them, and
//! such an object never takes a key that another client's object has.

use super::Writeback;
use super::pending::{Change, Extent, PendingObject, slice_extents};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use store::{
    CopyOptions, ETag, ObjectKey, ObjectMeta, ObjectRef, Payload, Precondition, PutOptions, Result,
    StoreError,
};

/// Attempts to replace their object, while they keep changing it, before the upload fails.
const ATTEMPTS_MAX: usize = 5;
/// Length of parts, in bytes. Longer objects are uploaded in parts.
const PART_BYTES: u64 = 8 << 20;

/// A conflict: another client changed a key in the bucket before our change was uploaded.
#[derive(Debug, Clone)]
pub struct Overtaken {
    /// The key that both sides changed.
    pub key: ObjectKey,
    /// Their object; `None`: they deleted it.
    pub theirs: Option<ObjectRef>,
    /// Whether the bucket still has all objects that our object is made of.
    pub is_complete: bool,
}

/// The decision of a conflict: whose object keeps the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Their object keeps the key; ours is stored under this one.
    OursTo(ObjectKey),
    /// Our object gets the key; theirs, if there is one, is copied to this one before.
    TheirsTo(ObjectKey),
}

/// Refuses to keep an object under the conflict's own key, where one object would replace the other: the key is too long for
/// another one to be made of it.
///
/// # Errors
/// [`StoreError::Invalid`].
pub(crate) fn require_other_key(key: &ObjectKey, kept_key: &ObjectKey) -> Result<()> {
    match key == kept_key {
        false => Ok(()),
        true => Err(StoreError::Invalid(format!(
            "the key '{key}' is too long for its object to be kept under another key"
        ))),
    }
}

/// Where the objects of both sides are after a conflict.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The conflict.
    pub overtaken: Overtaken,
    /// Our object; `None`: it is about to replace theirs or, if the conflict is not complete, nothing is left of it.
    pub ours: Option<ObjectRef>,
    /// Their object, or the copy of it.
    pub theirs: Option<ObjectRef>,
}

/// Decides conflicts.
#[derive(Clone)]
pub struct Judge {
    /// Decides whose object keeps the key. If the conflict is not complete the decision must be [`Way::OursTo`].
    pub way: Arc<dyn Fn(&Overtaken) -> Way + Send + Sync>,
    /// Records where both objects are: before their object is replaced, and again once all is done. After an error
    /// the upload is retried.
    pub note: Arc<dyn Fn(Outcome) -> BoxFuture<'static, Result<()>> + Send + Sync>,
    /// Called when their object keeps the key and our change is no longer visible.
    pub settled: Arc<dyn Fn(&ObjectKey) + Send + Sync>,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Judge")
    }
}

/// The judge, if there is one.
#[derive(Debug, Default)]
pub(super) enum JudgeState {
    /// No judge: our object is stored where the options say.
    #[default]
    None,
    /// A judge will be set later.
    Awaited,
    Set(Judge),
}

/// How a change ended.
pub(super) enum Resolution {
    /// The bucket has the change: the object under its key with this etag, or none after a deletion.
    Uploaded(Option<ETag>),
    /// The object is stored under another key, or nothing of it had to be kept.
    Aside,
}

impl Writeback {
    /// Makes conflicts wait until [`Writeback::judged_by`] is called.
    pub fn awaits_judge(&self) {
        *self.judge.lock().unwrap_or_else(PoisonError::into_inner) = JudgeState::Awaited;
    }

    /// Sets the judge of conflicts.
    pub fn judged_by(&self, judge: Judge) {
        *self.judge.lock().unwrap_or_else(PoisonError::into_inner) = JudgeState::Set(judge);
    }

    pub(super) fn judge(&self) -> Option<Judge> {
        match &*self.judge.lock().unwrap_or_else(PoisonError::into_inner) {
            JudgeState::Set(judge) => Some(judge.clone()),
            JudgeState::None | JudgeState::Awaited => None,
        }
    }

    fn is_judge_awaited(&self) -> bool {
        matches!(*self.judge.lock().unwrap_or_else(PoisonError::into_inner), JudgeState::Awaited)
    }

    /// Handles an upload that found something else in the bucket than the change was made over.
    pub(super) async fn resolve_conflict(&self, key: &ObjectKey, change: &Change) -> Result<Resolution> {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.bucket.find(key).await?;
            if self.is_ours(found.as_ref(), change.object.as_deref()).await? {
                return Ok(Resolution::Uploaded(found.map(|found| found.object.etag)));
            }
            if self.is_earlier_of_ours(change, found.as_ref()).await? {
                // An earlier change of ours was uploaded, and the process ended before the log recorded that.
                return self
                    .apply_to_bucket(key, change, condition_on(found.as_ref()))
                    .await
                    .map(Resolution::Uploaded);
            }
            // A deletion or a directory marker has no bytes to lose: their object keeps the key.
            let Some(object) = object_to_keep(key, change) else { return Ok(Resolution::Aside) };
            if self.is_judge_awaited() {
                return Err(StoreError::Unavailable(
                    "a conflict waits until it can be decided which object stays".into(),
                ));
            }
            let is_complete = self.is_complete(object).await?;
            let theirs = found.as_ref().map(|found| found.object.clone());
            let conflict = Overtaken { key: key.clone(), theirs, is_complete };
            match self.choose_resolution(&conflict) {
                Way::OursTo(kept_key) => return self.store_aside(conflict, object, &kept_key).await,
                Way::TheirsTo(kept_key) => {
                    if let Some(resolution) = self.replace_theirs(conflict, change, &kept_key).await? {
                        return Ok(resolution);
                    }
                }
            }
        }
        Err(StoreError::PreconditionFailed(key.clone()))
    }

    /// Returns whether the object found, or its absence, is what a change makes of its key. Another client's object
    /// may have the same length and metadata, so the bytes are compared. Our bytes that are gone, because the object
    /// they come from was replaced, prove nothing and are skipped: they could not be kept anyway.
    pub(super) async fn is_ours(
        &self,
        found: Option<&ObjectMeta>,
        ours: Option<&PendingObject>,
    ) -> Result<bool> {
        let (found, ours) = match (found, ours) {
            (Some(found), Some(ours)) => (found, ours),
            (found, ours) => return Ok(found.is_none() && ours.is_none()),
        };
        let size = ours.size_bytes();
        if found.size_bytes != size || found.attributes.user != ours.description.attributes.user {
            return Ok(false);
        }
        for start in (0..size).step_by(PART_BYTES as usize) {
            let mut at = start;
            for extent in slice_extents(&ours.extents, &(start..size.min(start + PART_BYTES))) {
                let range = at..at + extent.len();
                at = range.end;
                let Some(expected) = self.read_if_present(extent).await? else { continue };
                let theirs = self.read_if_present(Extent::Bucket(found.object.clone(), range)).await?;
                if theirs.is_none_or(|theirs| theirs != expected) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reads the bytes of an extent; `None` if the object they are in is gone.
    async fn read_if_present(&self, extent: Extent) -> Result<Option<Vec<u8>>> {
        let read = async { self.read_extents(vec![extent]).await?.try_collect::<Vec<_>>().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes.concat())),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the object found is one that an earlier change of the same key left there.
    async fn is_earlier_of_ours(&self, change: &Change, found: Option<&ObjectMeta>) -> Result<bool> {
        for earlier in change.earlier_attempts() {
            if self.is_ours(found, earlier).await? {
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
    ) -> Result<Resolution> {
        let Some(object) = object_to_keep(key, change) else {
            tracing::error!(%key, %refusal, "the bucket refuses a deletion or a directory marker for good; the change is dropped");
            return Ok(Resolution::Aside);
        };
        if self.is_judge_awaited() {
            return Err(refusal);
        }
        // If the bucket cannot be read, nothing under its key is touched all the same.
        let theirs = self.bucket.find(key).await.ok().flatten().map(|found| found.object);
        let is_complete = self.is_complete(object).await?;
        let kept_key = (self.options.lost)(key, self.entropy.next_u64());
        let conflict = Overtaken { key: key.clone(), theirs, is_complete };
        let stored = self.store_aside(conflict, object, &kept_key).await;
        if stored.is_ok() {
            tracing::error!(%key, kept = %kept_key, %refusal, "the bucket refuses an object for good; its bytes are kept under another key");
        }
        // A change that is refused under the other key too stays in the log.
        stored.map_err(|_| refusal)
    }

    fn choose_resolution(&self, conflict: &Overtaken) -> Way {
        match self.judge() {
            Some(judge) => (judge.way)(conflict),
            None => Way::OursTo((self.options.lost)(&conflict.key, self.entropy.next_u64())),
        }
    }

    async fn note_outcome(&self, outcome: Outcome) -> Result<()> {
        match self.judge() {
            Some(judge) => (judge.note)(outcome).await,
            None => Ok(()),
        }
    }

    /// Keeps their object under the key and stores ours under `kept_key`.
    async fn store_aside(
        &self,
        conflict: Overtaken,
        object: &PendingObject,
        kept_key: &ObjectKey,
    ) -> Result<Resolution> {
        if !conflict.is_complete && !object.has_log_bytes() {
            tracing::warn!(key = %conflict.key, "nothing could be kept: another client replaced or deleted the object that was moved or copied");
            return Ok(Resolution::Aside);
        }
        require_other_key(&conflict.key, kept_key)?;
        let ours = match conflict.is_complete {
            true => self.store_object(kept_key, object, Precondition::None).await?,
            false => self.store_with_gaps(kept_key, object).await?,
        };
        let key = conflict.key.clone();
        let theirs = conflict.theirs.clone();
        self.note_outcome(Outcome { overtaken: conflict, ours: Some(ours), theirs }).await?;
        tracing::warn!(%key, kept = %kept_key, "another client changed the object in the bucket before our change was uploaded: the bucket's object stays, ours is kept under another key");
        Ok(Resolution::Aside)
    }

    /// Replaces their object with ours, after copying theirs to `kept_key`. `None`: their object has changed by now.
    async fn replace_theirs(
        &self,
        conflict: Overtaken,
        change: &Change,
        kept_key: &ObjectKey,
    ) -> Result<Option<Resolution>> {
        if conflict.theirs.is_some() {
            require_other_key(&conflict.key, kept_key)?;
        }
        let copy = match &conflict.theirs {
            None => None,
            Some(theirs) => match self.bucket.copy(theirs, kept_key, CopyOptions::default()).await {
                Ok(copy) => Some(copy),
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let outcome = Outcome { overtaken: conflict, ours: None, theirs: copy };
        self.note_outcome(outcome.clone()).await?;
        let key = outcome.overtaken.key.clone();
        let base = outcome.overtaken.theirs.as_ref();
        let base = base.map_or(Precondition::Absent, |object| Precondition::Matches(object.etag.clone()));
        match self.apply_to_bucket(&key, change, base).await {
            Ok(etag) => {
                tracing::warn!(%key, "another client changed the object in the bucket before our change was uploaded: ours replaced it");
                let ours = etag.clone().map(|etag| ObjectRef::new(key, etag));
                self.note_outcome(Outcome { ours, ..outcome }).await?;
                Ok(Some(Resolution::Uploaded(etag)))
            }
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                if let Some(copy) = outcome.theirs {
                    self.bucket.delete(&copy.key, Precondition::None).await?;
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether the bucket still has all objects that an object is made of.
    async fn is_complete(&self, object: &PendingObject) -> Result<bool> {
        for extent in &object.extents {
            let Extent::Bucket(from, _) = extent else { continue };
            let found = self.bucket.find(&from.key).await?;
            if found.is_none_or(|found| found.object.etag != from.etag) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stores an object of which some bytes are gone: zeros replace them.
    async fn store_with_gaps(&self, key: &ObjectKey, object: &PendingObject) -> Result<ObjectRef> {
        let (attributes, tags) = (object.description.attributes.clone(), object.description.tags.clone());
        let size = object.size_bytes();
        if size <= PART_BYTES {
            let options =
                PutOptions { precondition: Precondition::None, attributes, tags, ..PutOptions::default() };
            return self.bucket.put(key, self.read_with_gaps(object, 0..size).await?, options).await;
        }
        let upload = self.bucket.multipart(key, attributes, tags).await?;
        let part_bytes = PART_BYTES.max(size.div_ceil(10_000).next_multiple_of(1 << 20));
        let sent = async {
            for (index, start) in (0..size).step_by(part_bytes as usize).enumerate() {
                let body = self.read_with_gaps(object, start..size.min(start + part_bytes)).await?;
                upload.put_part(index as u32 + 1, body).await?;
            }
            upload.complete(Precondition::None).await
        };
        let outcome = sent.await;
        if outcome.is_err() {
            upload.abort().await.ok();
        }
        outcome
    }

    /// Reads a range of an object, with zeros for bytes that are gone.
    async fn read_with_gaps(&self, object: &PendingObject, range: Range<u64>) -> Result<Payload> {
        let mut payload = Payload::default();
        for extent in slice_extents(&object.extents, &range) {
            let len = extent.len();
            let read = async { self.read_extents(vec![extent]).await?.try_collect::<Vec<_>>().await };
            match read.await {
                Ok(bytes) => bytes.into_iter().for_each(|bytes| payload.push(bytes)),
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                    payload.push(Bytes::from(vec![0; len as usize]));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(payload)
    }
}

/// Returns the object of a change if its bytes must be kept. A directory marker has none.
fn object_to_keep<'c>(key: &ObjectKey, change: &'c Change) -> Option<&'c PendingObject> {
    change.object.as_deref().filter(|object| !(key.as_bytes().ends_with(b"/") && object.size_bytes() == 0))
}

/// Returns the condition that the bucket still has what was found.
fn condition_on(found: Option<&ObjectMeta>) -> Precondition {
    found.map_or(Precondition::Absent, |found| Precondition::Matches(found.object.etag.clone()))
}
