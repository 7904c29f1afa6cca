//! A change goes up, and somebody else has changed its key in the bucket: perhaps it was the change itself, whose answer was
//! lost; else a judge says whose object has the key.
//!
//! Invariants: theirs is replaced only under a condition on what was seen, after it was copied and the judge has noted that;
//! zeros stand for what a change was made of that is gone, and such bytes never take a key that others have.

use super::Writeback;
use super::pending::{Change, Piece, Waiting, slice};
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
pub(super) enum Judged {
    /// None: ours goes where the options say.
    #[default]
    No,
    /// One is to come.
    Later,
    By(Judge),
}

/// Where a change is.
pub(super) enum Went {
    /// Under its key, with this tag, or it was a deletion.
    Up(Option<ETag>),
    /// Elsewhere.
    Aside,
}

impl Writeback {
    /// What is overtaken waits from now on until [`Writeback::judged_by`] is called.
    pub fn awaits_judge(&self) {
        *self.judged.lock().unwrap_or_else(PoisonError::into_inner) = Judged::Later;
    }

    /// From now on this one says what becomes of changes that were overtaken.
    pub fn judged_by(&self, judge: Judge) {
        *self.judged.lock().unwrap_or_else(PoisonError::into_inner) = Judged::By(judge);
    }

    pub(super) fn judge(&self) -> Option<Judge> {
        match &*self.judged.lock().unwrap_or_else(PoisonError::into_inner) {
            Judged::By(judge) => Some(judge.clone()),
            Judged::No | Judged::Later => None,
        }
    }

    fn is_judge_to_come(&self) -> bool {
        matches!(*self.judged.lock().unwrap_or_else(PoisonError::into_inner), Judged::Later)
    }

    /// The bucket has something else than this change was made over.
    pub(super) async fn send_over(&self, key: &ObjectKey, change: &Change) -> Result<Went> {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.bucket.find(key).await?;
            if self.is_same(found.as_ref(), change.object.as_deref()).await? {
                return Ok(Went::Up(found.map(|found| found.object.etag)));
            }
            if self.follows(change, found.as_ref()).await? {
                // Ours too: it got there, and the process ended before it could say so.
                return self.apply(key, change, exactly(found.as_ref())).await.map(Went::Up);
            }
            // Nothing of ours could be lost, which is a deletion or only says that there is a directory: theirs stays.
            let Some(object) = kept_object(key, change) else { return Ok(Went::Aside) };
            if self.is_judge_to_come() {
                return Err(StoreError::Unavailable("nobody can say yet whose object stays".into()));
            }
            let is_complete = self.is_complete(object).await?;
            let theirs = found.as_ref().map(|found| found.object.clone());
            let overtaken = Overtaken { key: key.clone(), theirs, is_complete };
            match self.way(&overtaken) {
                Way::OursTo(there) => return self.step_aside(overtaken, object, &there).await,
                Way::TheirsTo(there) => {
                    if let Some(went) = self.replace(overtaken, change, &there).await? {
                        return Ok(went);
                    }
                }
            }
        }
        Err(StoreError::PreconditionFailed(key.clone()))
    }

    /// Whether what was found is what a change makes of its key: an object of the same length and metadata may still be another
    /// client's, so the bytes are compared. Bytes of ours that are gone, because the object they come from was replaced, prove
    /// nothing and hold nobody up: they could not be kept anyway.
    pub(super) async fn is_same(&self, found: Option<&ObjectMeta>, ours: Option<&Waiting>) -> Result<bool> {
        let (found, ours) = match (found, ours) {
            (Some(found), Some(ours)) => (found, ours),
            (found, ours) => return Ok(found.is_none() && ours.is_none()),
        };
        let size = ours.size_bytes();
        if found.size_bytes != size || found.attributes.user != ours.described.attributes.user {
            return Ok(false);
        }
        for start in (0..size).step_by(PART_BYTES as usize) {
            let mut at = start;
            for piece in slice(&ours.pieces, &(start..size.min(start + PART_BYTES))) {
                let range = at..at + piece.len();
                at = range.end;
                let Some(expected) = self.read_if_there(piece).await? else { continue };
                let theirs = self.read_if_there(Piece::There(found.object.clone(), range)).await?;
                if theirs.is_none_or(|theirs| theirs != expected) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The bytes of a piece, unless the object they are in is gone.
    async fn read_if_there(&self, piece: Piece) -> Result<Option<Vec<u8>>> {
        let read = async { self.read(vec![piece]).await?.try_collect::<Vec<_>>().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes.concat())),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether an earlier change of the same key left there what was found.
    async fn follows(&self, change: &Change, found: Option<&ObjectMeta>) -> Result<bool> {
        for earlier in change.earlier() {
            if self.is_same(found, earlier).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The bucket refuses a change for good: ours goes where it can be found, as after a conflict.
    pub(super) async fn give_way(
        &self,
        key: &ObjectKey,
        change: &Change,
        refusal: StoreError,
    ) -> Result<Went> {
        let Some(object) = kept_object(key, change) else {
            tracing::error!(%key, %refusal, "a deletion or a directory that the bucket refuses is given up");
            return Ok(Went::Aside);
        };
        if self.is_judge_to_come() {
            return Err(refusal);
        }
        // Whether the bucket may be asked or not, what it has stays.
        let theirs = self.bucket.find(key).await.ok().flatten().map(|found| found.object);
        let is_complete = self.is_complete(object).await?;
        let there = (self.options.lost)(key, self.entropy.next_u64());
        let overtaken = Overtaken { key: key.clone(), theirs, is_complete };
        let went = self.step_aside(overtaken, object, &there).await;
        if went.is_ok() {
            tracing::error!(%key, kept = %there, %refusal, "the bucket refuses an object: its bytes are kept under another key");
        }
        // What is refused there as well stays in the log.
        went.map_err(|_| refusal)
    }

    fn way(&self, overtaken: &Overtaken) -> Way {
        match self.judge() {
            Some(judge) => (judge.way)(overtaken),
            None => Way::OursTo((self.options.lost)(&overtaken.key, self.entropy.next_u64())),
        }
    }

    async fn note(&self, outcome: Outcome) -> Result<()> {
        match self.judge() {
            Some(judge) => (judge.note)(outcome).await,
            None => Ok(()),
        }
    }

    /// Theirs stays, and our bytes go where they can be found.
    async fn step_aside(&self, overtaken: Overtaken, object: &Waiting, there: &ObjectKey) -> Result<Went> {
        if !overtaken.is_complete && !object.has_bytes_here() {
            tracing::warn!(key = %overtaken.key, "nothing is kept: another client replaced or deleted what was moved or copied here");
            return Ok(Went::Aside);
        }
        if *there == overtaken.key {
            // Ours would replace theirs.
            return Err(StoreError::Invalid(format!("'{there}' is too long to be kept under another name")));
        }
        let ours = match overtaken.is_complete {
            true => self.store(there, object, Precondition::None).await?,
            false => self.store_rest(there, object).await?,
        };
        let key = overtaken.key.clone();
        let theirs = overtaken.theirs.clone();
        self.note(Outcome { overtaken, ours: Some(ours), theirs }).await?;
        tracing::warn!(%key, kept = %there, "the object was changed in the bucket while ours waited to go up: the bucket's stays");
        Ok(Went::Aside)
    }

    /// Ours replaces exactly theirs, which is copied before. `None`: it is another one by now.
    async fn replace(
        &self,
        overtaken: Overtaken,
        change: &Change,
        there: &ObjectKey,
    ) -> Result<Option<Went>> {
        let copy = match &overtaken.theirs {
            None => None,
            Some(theirs) => match self.bucket.copy(theirs, there, CopyOptions::default()).await {
                Ok(copy) => Some(copy),
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let outcome = Outcome { overtaken, ours: None, theirs: copy };
        self.note(outcome.clone()).await?;
        let key = outcome.overtaken.key.clone();
        let base = outcome.overtaken.theirs.as_ref();
        let base = base.map_or(Precondition::Absent, |object| Precondition::Matches(object.etag.clone()));
        match self.apply(&key, change, base).await {
            Ok(etag) => {
                tracing::warn!(%key, "the object was changed in the bucket while ours waited to go up: ours replaced it");
                let ours = etag.clone().map(|etag| ObjectRef::new(key, etag));
                self.note(Outcome { ours, ..outcome }).await?;
                Ok(Some(Went::Up(etag)))
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
    async fn is_complete(&self, object: &Waiting) -> Result<bool> {
        for piece in &object.pieces {
            let Piece::There(from, _) = piece else { continue };
            let found = self.bucket.find(&from.key).await?;
            if found.is_none_or(|found| found.object.etag != from.etag) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stores an object of which some is gone: zeros stand for that.
    async fn store_rest(&self, key: &ObjectKey, object: &Waiting) -> Result<ObjectRef> {
        let (attributes, tags) = (object.described.attributes.clone(), object.described.tags.clone());
        let size = object.size_bytes();
        if size <= PART_BYTES {
            let options =
                PutOptions { precondition: Precondition::None, attributes, tags, ..PutOptions::default() };
            return self.bucket.put(key, self.rest(object, 0..size).await?, options).await;
        }
        let upload = self.bucket.multipart(key, attributes, tags).await?;
        let part_bytes = PART_BYTES.max(size.div_ceil(10_000).next_multiple_of(1 << 20));
        let sent = async {
            for (index, start) in (0..size).step_by(part_bytes as usize).enumerate() {
                let body = self.rest(object, start..size.min(start + part_bytes)).await?;
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
    async fn rest(&self, object: &Waiting, range: Range<u64>) -> Result<Payload> {
        let mut payload = Payload::default();
        for piece in slice(&object.pieces, &range) {
            let len = piece.len();
            let read = async { self.read(vec![piece]).await?.try_collect::<Vec<_>>().await };
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
fn kept_object<'c>(key: &ObjectKey, change: &'c Change) -> Option<&'c Waiting> {
    change.object.as_deref().filter(|object| !(key.as_bytes().ends_with(b"/") && object.size_bytes() == 0))
}

fn exactly(found: Option<&ObjectMeta>) -> Precondition {
    found.map_or(Precondition::Absent, |found| Precondition::Matches(found.object.etag.clone()))
}
