//! Changes go up: the oldest first, several at a time, until nothing waits.

use super::Asked;
use super::Writeback;
use super::early_upload::EarlyUpload;
use super::log_record::Record;
use super::make_change::NewObject;
use super::pending::{Change, Piece, Waiting, slice};
use super::upload_conflict::Went;
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
use tokio::time::Instant;

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
/// The longest wait of a change that the bucket refuses.
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(300);
/// After so many refusals, within about a quarter of an hour, a change gives way to what the bucket has.
const REFUSALS_MAX: u32 = 12;

/// How an attempt ended.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    /// The change is in the bucket.
    Up,
    /// The bucket's answer concerns this change alone.
    Refused,
    /// Others would fail as well.
    Failed,
}

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
        let fresh = pending.oldest_at().map(|oldest| match self.is_urgent(pending.len()) {
            true => Duration::ZERO,
            false => self.options.delay.saturating_sub(self.clock.now().since(oldest)),
        });
        let again = pending.retry_at().map(|at| at.saturating_duration_since(Instant::now()));
        fresh.into_iter().chain(again).min()
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

    /// The next change that goes up, on its way from now on.
    fn next_due(&self) -> Option<(ObjectKey, Change)> {
        let _changing = self.changing();
        self.pending().next(Instant::now())
    }

    /// Sends one change up, and records that it is there.
    async fn send(&self, key: &ObjectKey, change: &Change) -> Result<()> {
        let takes_object = change.object.is_none() || change.base != Precondition::Absent;
        // After a loss of power the log may say less than the bucket has of a new object, but nothing else. Keys that are used
        // once are not known from the bucket.
        let needs_no_record = change.is_alone && !self.options.keys_are_used_once;
        if takes_object || !(needs_no_record || change.is_synced()) {
            // A record that lets go of the object that goes may be an earlier or a later one, and must not be lost then; nor
            // may the log lose what the bucket has.
            self.sync_log().await?;
        }
        let went = match self.apply(key, change, change.base.clone()).await {
            Ok(etag) => Ok(Went::Up(etag)),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                self.send_over(key, change).await
            }
            Err(error) => Err(error),
        };
        let went = match went {
            // A key that is used once has no other object to give way to, and names refer to it: its bytes stay here.
            Err(error)
                if is_refusal(&error)
                    && change.failures + 1 >= REFUSALS_MAX
                    && !self.options.keys_are_used_once =>
            {
                self.give_way(key, change, error).await?
            }
            went => went?,
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
        self.pending().unsynced.note(key, &self.log);
    }

    /// A change is in the bucket, where the object has this tag.
    fn is_there(&self, key: &ObjectKey, change: &Change, etag: Option<ETag>) {
        let _changing = self.changing();
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
        let changing = self.changing();
        self.note_done(key, change, None);
        self.pending().aside(key, change.number);
        drop(changing);
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
        let Some(object) = &change.object else { return Ok(()) };
        if object.is_made_of(&found.object) {
            return Ok(());
        }
        let is_ours = self.is_same(Some(&found), Some(object)).await?;
        if is_ours && self.pending().waits(key, change.number) {
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
        if let Some(early) = object.early.take(key)
            && let Some(stored) = complete_early(early, key, &base).await?
        {
            return Ok(stored);
        }
        let size = object.size_bytes();
        if size <= PART_BYTES {
            let _memory = self.send_memory.take(size).await?;
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
        let (precondition, size_bytes) = (base.clone(), Some(there.size_bytes));
        // Tags may have been set while the copy waited.
        let tags = &object.described.tags;
        let are_same = tags.is_empty() && there.tag_count.is_none_or(|count| count == 0);
        let tags = (!are_same).then(|| tags.clone());
        let options = CopyOptions { attributes, tags, precondition, size_bytes };
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

    pub(super) async fn send_part(
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
        let _memory = self.send_memory.take(range.end - range.start).await?;
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
        let object = NewObject::new(object.described.clone(), pieces);
        self.change(key, &asked, Some(object), Payload::default()).await
    }

    async fn reclaim(&self) {
        let is_due = self.log.is_worth_reclaiming() || self.log.bytes() > self.options.limit_bytes / 2;
        let Some(me) = self.me.upgrade().filter(|_| is_due) else { return };
        if let Err(error) = blocking(move || me.log.reclaim()).await {
            tracing::warn!(%error, "a segment of the write-back log cannot be removed");
        }
    }
}

/// Completes an upload that began before its object was complete. `None`: the object is sent anew.
async fn complete_early(
    early: EarlyUpload,
    key: &ObjectKey,
    base: &Precondition,
) -> Result<Option<ObjectRef>> {
    let upload = match early.finish().await {
        Ok(upload) => upload,
        Err(error) => {
            tracing::debug!(%key, %error, "an object is sent anew from the write-back log");
            return Ok(None);
        }
    };
    let completed = upload.complete(base.clone()).await;
    if completed.is_err() {
        upload.abort().await.ok();
    }
    match completed {
        // The parts do not fit each other, such as one that is too short.
        Err(StoreError::Invalid(_)) => Ok(None),
        completed => completed.map(Some),
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
            && let Some((key, change)) = writeback.next_due()
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
                let is_answered = |outcome: Result<Sent, _>| outcome.is_ok_and(|sent| sent != Sent::Failed);
                let mut is_well = is_answered(outcome);
                // What failed at the same time failed for the same reason, and costs one wait.
                while let Some(outcome) = sending.try_join_next() {
                    is_well |= is_answered(outcome);
                }
                if is_well {
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

/// Sends a change; one that fails goes up again later.
async fn send_one(writeback: Arc<Writeback>, key: ObjectKey, change: Change) -> Sent {
    let sent = writeback.send(&key, &change).await;
    let (number, failures) = (change.number, change.failures);
    drop(change);
    writeback.sending.fetch_sub(1, Ordering::AcqRel);
    let outcome = match &sent {
        Ok(()) => Sent::Up,
        Err(error) => {
            let is_refused = is_refusal(error);
            if is_refused && failures == 0 {
                tracing::error!(%key, %error, "the bucket refuses a change; it stays in the write-back log, and others go up");
            } else {
                tracing::warn!(%key, %error, failures, "a change cannot go up; it stays in the write-back log and is tried again");
            }
            let until = Instant::now() + wait_after(failures, is_refused);
            writeback.pending().failed(&key, number, until, is_refused);
            if is_refused { Sent::Refused } else { Sent::Failed }
        }
    };
    writeback.reclaim().await;
    writeback.trim_notes();
    // Whoever waits for this looks once it has ended.
    writeback.lighter.notify_waiters();
    outcome
}

/// How long a change waits that was tried in vain so often before.
fn wait_after(failures: u32, is_refused: bool) -> Duration {
    let longest = if is_refused { REFUSED_WAIT_MAX } else { WAITS.1 };
    WAITS.0.saturating_mul(1 << failures.min(16)).min(longest)
}

/// Whether the bucket would answer the same again, and to this change alone.
fn is_refusal(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Denied(_)
            | StoreError::InvalidKey { .. }
            | StoreError::Locked(_)
            | StoreError::Unsupported(_)
            | StoreError::Invalid(_)
    )
}
