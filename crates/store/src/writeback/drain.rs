//! Changes go up: the oldest first, several at a time, until nothing waits.

use super::Asked;
use super::Writeback;
use super::overtaken::Went;
use super::pending::{Change, Piece, Waiting, slice};
use super::record::Record;
use crate::{
    CopyOptions, ETag, Multipart, ObjectKey, ObjectRef, Payload, Precondition, PutOptions, Result,
    StoreError, Timestamp, blocking,
};
use futures_util::TryStreamExt as _;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;

/// After a change, programs are taken to be writing for so long. They need the processors: so long as no change has
/// waited longer than the patience, one goes up at a time.
const BUSY_FOR: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(10);
/// Changes going up at the same time, at least and at most.
const AT_ONCE: (usize, usize) = (4, 16);
/// One more goes up at the same time for each so many that wait.
const CHANGES_FOR_ONE_MORE: usize = 2048;
/// Longer objects go up in parts of this length, in bytes.
const PART_BYTES: u64 = 8 << 20;
/// Parts of one object under way at the same time.
const PARTS_AT_ONCE: usize = 3;
/// The least length of a part that is copied inside the bucket.
const COPIED_BYTES_MIN: u64 = 5 << 20;
/// How often it is looked whether a change is due, at most and at least.
const IDLE_MIN: Duration = Duration::from_millis(1);
const LOOKS_EVERY: Duration = Duration::from_secs(30);
/// The first and the longest wait after a failure, in which the store's client has tried for a while already.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

impl Writeback {
    /// Lets changes go up for as long as anybody holds the store.
    pub(super) fn start(&self) {
        let me = self.me.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(drain(me));
        }
    }

    /// How long until the next change is due.
    fn due_in(&self) -> Option<Duration> {
        let pending = self.pending();
        let oldest = pending.oldest_at()?;
        let age = self.clock.now().since(oldest);
        Some(if self.is_urgent(pending.len()) {
            Duration::ZERO
        } else {
            self.options.delay.saturating_sub(age)
        })
    }

    fn at_once(&self) -> usize {
        let (now, pending) = (self.clock.now(), self.pending());
        let is_since = |at: Option<Timestamp>, age: Duration| at.is_some_and(|at| now.since(at) < age);
        if self.is_urgent(pending.len()) {
            AT_ONCE.1
        } else if is_since(pending.newest_at(), BUSY_FOR) && is_since(pending.oldest_at(), PATIENCE) {
            1
        } else {
            (AT_ONCE.0 + pending.len() / CHANGES_FOR_ONE_MORE).min(AT_ONCE.1)
        }
    }

    /// The oldest change that is due, where all wait for each other.
    fn stuck(&self) -> Option<(ObjectKey, Change)> {
        self.due_in().filter(Duration::is_zero)?;
        self.pending().stuck()
    }

    /// Sends one change up, and records that it is there.
    async fn send(&self, key: &ObjectKey, change: &Change) -> Result<()> {
        let takes_object = change.object.is_none() || change.base != Precondition::Absent;
        if takes_object || !change.is_synced() {
            // Whoever let go of the object that goes did so in an earlier record, or in a later one, which must not be
            // lost then; nor may the log lose what the bucket has.
            self.sync_log().await?;
        }
        let went = match self.apply(key, change, change.base.clone()).await {
            Ok(etag) => Went::Up(etag),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                self.send_over(key, change).await?
            }
            Err(error) => return Err(error),
        };
        match went {
            Went::Up(etag) => self.is_there(key, change, etag),
            Went::Aside => self.is_aside(key, change),
        }
        Ok(())
    }

    fn note_done(&self, key: &ObjectKey, change: &Change, etag: Option<ETag>) {
        let done = Record::Done { change: change.number, key: key.clone(), etag };
        if let Err(error) = self.log.append(&done, &Payload::default()) {
            // After a crash it goes up once more, and is recognised there. To keep it for that would keep a full disk full.
            tracing::warn!(%key, %error, "the write-back log cannot note that a change went up");
        }
    }

    /// A change is in the bucket, where the object has this tag.
    fn is_there(&self, key: &ObjectKey, change: &Change, etag: Option<ETag>) {
        self.note_done(key, change, etag.clone());
        if let (Some(object), Some(there)) = (&change.object, &etag) {
            // Before it is out of the pending ones: who reads next asks the bucket by its tag.
            self.aliases().remember(key, object.described.etag.clone(), there.clone());
        }
        self.pending().done(key, change.number, etag);
        self.went_up.fetch_add(1, Ordering::AcqRel);
    }

    /// Somebody else's object has the key, and ours is elsewhere: a newer change meets theirs too.
    fn is_aside(&self, key: &ObjectKey, change: &Change) {
        self.note_done(key, change, None);
        self.pending().aside(key, change.number);
        self.went_up.fetch_add(1, Ordering::AcqRel);
        if let Some(judge) = self.judge() {
            (judge.settled)(key);
        }
    }

    /// A change that replaces what it is made of may have got there before the process ended, or its answer was lost.
    /// Nothing can be read of it then but in the bucket.
    pub(super) async fn settle_tried(&self, key: &ObjectKey) -> Result<()> {
        let tried = self.pending().get(key).filter(|change| change.may_have_replaced(key)).cloned();
        let Some(change) = tried else { return Ok(()) };
        let found = match self.bucket.head(key).await {
            Err(StoreError::NotFound(_)) => return Ok(()),
            found => found?,
        };
        let form = Some((found.size_bytes, found.attributes.user));
        if form == change.form() && self.pending().waits(key, change.number) {
            self.is_there(key, &change, Some(found.object.etag));
        }
        Ok(())
    }

    /// Changes the bucket; returns the object's tag, if there is one now.
    pub(super) async fn apply(
        &self,
        key: &ObjectKey,
        change: &Change,
        base: Precondition,
    ) -> Result<Option<ETag>> {
        match &change.object {
            None => self.bucket.delete(key, base).await.map(|()| None),
            Some(object) => self.store(key, object, base).await.map(|stored| Some(stored.etag)),
        }
    }

    pub(super) async fn store(
        &self,
        key: &ObjectKey,
        object: &Waiting,
        base: Precondition,
    ) -> Result<ObjectRef> {
        let (attributes, tags) = (object.described.attributes.clone(), object.described.tags.clone());
        if let [Piece::There(from, range)] = object.pieces.as_slice()
            && let Some(copied) = self.copy_whole(from, range, key, object, &base).await?
        {
            return Ok(copied);
        }
        let size = object.size_bytes();
        if size <= PART_BYTES {
            let body = self.bytes(object, 0..size).await?;
            let options = PutOptions { precondition: base, attributes, tags, ..PutOptions::default() };
            return self.bucket.put(key, body, options).await;
        }
        let upload = self.bucket.multipart(key, attributes, tags).await?;
        let outcome = match self.send_parts(object, upload.as_ref()).await {
            Ok(()) => upload.complete(base).await,
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            upload.abort().await.ok();
        }
        outcome
    }

    /// An object that is another whole one is copied inside the bucket.
    async fn copy_whole(
        &self,
        from: &ObjectRef,
        range: &Range<u64>,
        to: &ObjectKey,
        object: &Waiting,
        base: &Precondition,
    ) -> Result<Option<ObjectRef>> {
        let there = self.bucket.head(&from.key).await?;
        if there.object.etag != from.etag || *range != (0..there.size_bytes) {
            return Ok(None);
        }
        let attributes = Some(object.described.attributes.clone());
        let options =
            CopyOptions { attributes, precondition: base.clone(), size_bytes: Some(there.size_bytes) };
        self.bucket.copy(from, to, options).await.map(Some)
    }

    async fn send_parts(&self, object: &Waiting, upload: &dyn Multipart) -> Result<()> {
        let size = object.size_bytes();
        let part_bytes = part_bytes(size);
        let parts: Vec<_> = (0..size.div_ceil(part_bytes))
            .map(|index| {
                let range = index * part_bytes..((index + 1) * part_bytes).min(size);
                self.send_part(object, upload, index as u32 + 1, range)
            })
            .collect();
        let parts = futures_util::stream::iter(parts.into_iter().map(Ok::<_, StoreError>));
        parts.try_for_each_concurrent(PARTS_AT_ONCE, |part| part).await
    }

    async fn send_part(
        &self,
        object: &Waiting,
        upload: &dyn Multipart,
        number: u32,
        range: Range<u64>,
    ) -> Result<()> {
        if let [Piece::There(from, within)] = slice(&object.pieces, &range).as_slice()
            && (within.end - within.start >= COPIED_BYTES_MIN || range.end == object.size_bytes())
        {
            return upload.copy_part(number, from, within.clone()).await;
        }
        upload.put_part(number, self.bytes(object, range).await?).await
    }

    async fn bytes(&self, object: &Waiting, range: Range<u64>) -> Result<Payload> {
        let body = self.read(slice(&object.pieces, &range)).await?;
        Ok(body.try_collect::<Vec<_>>().await?.into_iter().collect())
    }

    /// Where all changes wait for each other's sources: the bytes that the oldest is made of come here.
    async fn untangle(&self, key: &ObjectKey, change: &Change) -> Result<()> {
        let Some(object) = &change.object else { return Ok(()) };
        let mut pieces = Vec::new();
        let size = object.size_bytes();
        for start in (0..size).step_by(PART_BYTES as usize) {
            let body = self.bytes(object, start..size.min(start + PART_BYTES)).await?;
            pieces.extend(self.append_bytes(&body).await?);
        }
        let same = Precondition::Matches(object.described.etag.clone());
        let asked = Asked { precondition: &same, look: None };
        self.change(key, &asked, Some((object.described.clone(), pieces)), Payload::default()).await
    }

    async fn reclaim(&self) {
        let (Some(me), Some(_)) = (self.me.upgrade(), self.log.last_unneeded()) else { return };
        if let Err(error) = blocking(move || me.log.reclaim()).await {
            tracing::warn!(%error, "a segment of the write-back log cannot be removed");
        }
    }
}

/// The length of the parts of an object, of which there are at most 10,000.
fn part_bytes(size: u64) -> u64 {
    PART_BYTES.max(size.div_ceil(10_000).next_multiple_of(1 << 20))
}

async fn drain(me: Weak<Writeback>) {
    let mut sending = JoinSet::new();
    let mut wait = WAITS.0;
    loop {
        let Some(writeback) = me.upgrade() else { return };
        let at_once = writeback.at_once();
        while sending.len() < at_once
            && writeback.due_in().is_some_and(|due| due.is_zero())
            && let Some((key, change)) = writeback.pending().next()
        {
            writeback.sending.fetch_add(1, Ordering::AcqRel);
            sending.spawn(send_one(writeback.clone(), key, change));
        }
        let stuck = if sending.is_empty() { writeback.stuck() } else { None };
        if let Some((key, change)) = stuck {
            if let Err(error) = writeback.untangle(&key, &change).await {
                tracing::warn!(%key, %error, "what a change is made of cannot be read; it is tried again");
                tokio::time::sleep(wait).await;
            }
            continue;
        }
        let woken = writeback.woken.clone();
        let due = writeback.due_in().unwrap_or(LOOKS_EVERY).clamp(IDLE_MIN, LOOKS_EVERY);
        drop(writeback);
        tokio::select! {
            biased;
            Some(outcome) = sending.join_next() => {
                let mut went_up = matches!(outcome, Ok(true));
                // What failed at the same time failed for the same reason, and costs one wait.
                while let Some(outcome) = sending.try_join_next() {
                    went_up |= matches!(outcome, Ok(true));
                }
                if went_up {
                    wait = WAITS.0;
                } else {
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(WAITS.1);
                }
            }
            () = woken.notified() => {}
            () = tokio::time::sleep(due), if sending.len() < at_once => {}
        }
    }
}

/// True if it is in the bucket; else it goes up again.
async fn send_one(writeback: Arc<Writeback>, key: ObjectKey, change: Change) -> bool {
    let sent = writeback.send(&key, &change).await;
    drop(change);
    writeback.sending.fetch_sub(1, Ordering::AcqRel);
    if let Err(error) = &sent {
        tracing::warn!(%key, %error, "a change cannot go up; it stays in the write-back log and is tried again");
        writeback.pending().ended(&key);
    }
    writeback.reclaim().await;
    writeback.trim_notes();
    // Whoever waits for this looks once it has ended.
    writeback.lighter.notify_waiters();
    sent.is_ok()
}
