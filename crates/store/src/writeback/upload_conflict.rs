//! A change goes up, and somebody else has changed its key in the bucket: perhaps it was the change itself, whose answer was
//! lost; else a judge says whose object has the key.
//!
//! Invariants: theirs is replaced only under a condition on what was seen, after it was copied and the judge has noted that;
//! zeros stand for what a change was made of that is gone, and such bytes never take a key that others have.

use super::Writeback;
use super::pending::{Change, Extent, PendingObject, slice_extents};
use crate::{
    CopyOptions, ETag, ObjectKey, ObjectMeta, ObjectRef, Payload, Precondition, PutOptions, Result,
    StoreError,
};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

/// So often their object is replaced again by others before ours gives in.
const ATTEMPTS_MAX: usize = 5;
/// Longer objects go up in parts of this length, in bytes.
const PART_BYTES: u64 = 8 << 20;

/// A change that somebody else was faster than.
#[derive(Debug, Clone)]
pub struct Overtaken {
    /// What both wanted.
    pub key: ObjectKey,
    /// Theirs; `None`: they deleted it.
    pub theirs: Option<ObjectRef>,
    /// Whether all is still there that our object is made of.
    pub is_complete: bool,
}

/// Whose object has the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Theirs; ours goes to this one.
    OursTo(ObjectKey),
    /// Ours; theirs is copied to this one before, if there is any.
    TheirsTo(ObjectKey),
}

/// Where both sides are.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The change.
    pub overtaken: Overtaken,
    /// Ours; `None`: it is about to replace theirs, or where it is not complete nothing is left of it.
    pub ours: Option<ObjectRef>,
    /// Theirs, or the copy of it.
    pub theirs: Option<ObjectRef>,
}

/// Says what becomes of changes that were overtaken.
#[derive(Clone)]
pub struct Judge {
    /// Says whose object has the key. Must say something that works where ours is not complete: only
    /// [`Way::OursTo`] does.
    pub way: Arc<dyn Fn(&Overtaken) -> Way + Send + Sync>,
    /// Notes where both sides are, before anything of theirs goes, and again once all is done. An error: it is tried again.
    pub note: Arc<dyn Fn(Outcome) -> BoxFuture<'static, Result<()>> + Send + Sync>,
    /// Theirs has the key, as everybody sees from now on.
    pub settled: Arc<dyn Fn(&ObjectKey) + Send + Sync>,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Judge")
    }
}

/// Whether there is a judge.
#[derive(Debug, Default)]
pub(super) enum JudgeState {
    /// None: ours goes where the options say.
    #[default]
    None,
    /// One is to come.
    Awaited,
    Set(Judge),
}

/// Where a change is.
pub(super) enum Resolution {
    /// Under its key, with this tag, or it was a deletion.
    Uploaded(Option<ETag>),
    /// Elsewhere.
    Aside,
}

impl Writeback {
    /// What is overtaken waits from now on until [`Writeback::judged_by`] is called.
    pub fn awaits_judge(&self) {
        *self.judge.lock().unwrap_or_else(PoisonError::into_inner) = JudgeState::Awaited;
    }

    /// From now on this one says what becomes of changes that were overtaken.
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

    /// The bucket has something else than this change was made over.
    pub(super) async fn resolve_conflict(&self, key: &ObjectKey, change: &Change) -> Result<Resolution> {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.bucket.find(key).await?;
            if self.is_ours(found.as_ref(), change.object.as_deref()).await? {
                return Ok(Resolution::Uploaded(found.map(|found| found.object.etag)));
            }
            if self.is_earlier_of_ours(change, found.as_ref()).await? {
                // Ours too: it got there, and the process ended before it could say so.
                return self
                    .apply_to_bucket(key, change, condition_on(found.as_ref()))
                    .await
                    .map(Resolution::Uploaded);
            }
            // Nothing of ours could be lost, which is a deletion or only says that there is a directory: theirs stays.
            let Some(object) = object_to_keep(key, change) else { return Ok(Resolution::Aside) };
            if self.is_judge_awaited() {
                return Err(StoreError::Unavailable("nobody can say yet whose object stays".into()));
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

    /// Whether what was found is what a change makes of its key: an object of the same length and metadata may still be another
    /// client's, so the bytes are compared. Bytes of ours that are gone, because the object they come from was replaced, prove
    /// nothing and hold nobody up: they could not be kept anyway.
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
                let Some(expected) = self.read_if_there(extent).await? else { continue };
                let theirs = self.read_if_there(Extent::Bucket(found.object.clone(), range)).await?;
                if theirs.is_none_or(|theirs| theirs != expected) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The bytes of a piece, unless the object they are in is gone.
    async fn read_if_there(&self, extent: Extent) -> Result<Option<Vec<u8>>> {
        let read = async { self.read_extents(vec![extent]).await?.try_collect::<Vec<_>>().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes.concat())),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether an earlier change of the same key left there what was found.
    async fn is_earlier_of_ours(&self, change: &Change, found: Option<&ObjectMeta>) -> Result<bool> {
        for earlier in change.earlier_attempts() {
            if self.is_ours(found, earlier).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The bucket refuses a change for good: ours goes where it can be found, as after a conflict.
    pub(super) async fn set_aside_refused(
        &self,
        key: &ObjectKey,
        change: &Change,
        refusal: StoreError,
    ) -> Result<Resolution> {
        let Some(object) = object_to_keep(key, change) else {
            tracing::error!(%key, %refusal, "a deletion or a directory that the bucket refuses is given up");
            return Ok(Resolution::Aside);
        };
        if self.is_judge_awaited() {
            return Err(refusal);
        }
        // Whether the bucket may be asked or not, what it has stays.
        let theirs = self.bucket.find(key).await.ok().flatten().map(|found| found.object);
        let is_complete = self.is_complete(object).await?;
        let kept_key = (self.options.lost)(key, self.entropy.next_u64());
        let conflict = Overtaken { key: key.clone(), theirs, is_complete };
        let stored = self.store_aside(conflict, object, &kept_key).await;
        if stored.is_ok() {
            tracing::error!(%key, kept = %kept_key, %refusal, "the bucket refuses an object: its bytes are kept under another key");
        }
        // What is refused there as well stays in the log.
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

    /// Theirs stays, and our bytes go where they can be found.
    async fn store_aside(
        &self,
        conflict: Overtaken,
        object: &PendingObject,
        kept_key: &ObjectKey,
    ) -> Result<Resolution> {
        if !conflict.is_complete && !object.has_log_bytes() {
            tracing::warn!(key = %conflict.key, "nothing is kept: another client replaced or deleted what was moved or copied here");
            return Ok(Resolution::Aside);
        }
        if *kept_key == conflict.key {
            // Ours would replace theirs.
            return Err(StoreError::Invalid(format!(
                "'{kept_key}' is too long to be kept under another name"
            )));
        }
        let ours = match conflict.is_complete {
            true => self.store_object(kept_key, object, Precondition::None).await?,
            false => self.store_with_gaps(kept_key, object).await?,
        };
        let key = conflict.key.clone();
        let theirs = conflict.theirs.clone();
        self.note_outcome(Outcome { overtaken: conflict, ours: Some(ours), theirs }).await?;
        tracing::warn!(%key, kept = %kept_key, "the object was changed in the bucket while ours waited to go up: the bucket's stays");
        Ok(Resolution::Aside)
    }

    /// Ours replaces exactly theirs, which is copied before. `None`: it is another one by now.
    async fn replace_theirs(
        &self,
        conflict: Overtaken,
        change: &Change,
        kept_key: &ObjectKey,
    ) -> Result<Option<Resolution>> {
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
                tracing::warn!(%key, "the object was changed in the bucket while ours waited to go up: ours replaced it");
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

    /// Whether all objects are there that one is made of.
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

    /// Stores an object of which some is gone: zeros stand for that.
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

    /// A range of an object, as far as it is there.
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

/// The object of a change, if it is one that must not be lost: a directory's marker says nothing that theirs does not.
fn object_to_keep<'c>(key: &ObjectKey, change: &'c Change) -> Option<&'c PendingObject> {
    change.object.as_deref().filter(|object| !(key.as_bytes().ends_with(b"/") && object.size_bytes() == 0))
}

fn condition_on(found: Option<&ObjectMeta>) -> Precondition {
    found.map_or(Precondition::Absent, |found| Precondition::Matches(found.object.etag.clone()))
}
