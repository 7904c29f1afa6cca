//! The upload task: uploads pending changes, the oldest first, several concurrently.

use super::Writeback;
use super::bucket_side::PART_BYTES;
use super::condition::Condition;
use super::log_record::{self, Record};
use super::make_change::NewObject;
use super::pending::{Change, PendingObject};
use super::upload_result::UploadResult;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::{ETag, ObjectKey, Payload, Precondition, Result, StoreError, Timestamp, blocking};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// After a change, programs are assumed to write for this long, and they need the processors. Meanwhile one change is
/// uploaded at a time, as long as no change is older than `BUSY_AGE_MAX`.
const BUSY_FOR: Duration = Duration::from_millis(200);
/// Age of the oldest change that was not tried yet from which several changes are uploaded at a time although programs
/// write.
const BUSY_AGE_MAX: Duration = Duration::from_secs(10);
/// Minimum and maximum number of changes uploaded concurrently.
const CONCURRENT_UPLOADS: (usize, usize) = (4, 16);
/// Pending changes for which one more upload runs concurrently.
const CHANGES_PER_EXTRA_UPLOAD: usize = 2048;
/// Minimum sleep of the upload task when nothing can be uploaded.
const IDLE_MIN: Duration = Duration::from_millis(1);
/// Maximum sleep of the upload task.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Time after which the record of an upload survives the loss of power.
const SYNCED_AFTER: Duration = Duration::from_secs(1);
/// First and longest delay after a failure; the store's client has retried for a while by then.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// Longest delay of a change that the bucket refuses.
const REFUSED_DELAY_MAX: Duration = Duration::from_secs(300);
/// Refusals, within about a quarter of an hour, after which a change gives way to what the bucket has.
const REFUSALS_MAX: u32 = 12;

/// Result of an attempt to upload a change.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    /// The change is in the bucket, or was set aside.
    Uploaded,
    /// The bucket refused this change; other changes are not affected.
    Refused,
    /// The attempt failed for a reason that makes attempts at other changes fail as well.
    Failed,
}

impl Writeback {
    /// Starts the upload task, which runs as long as the store exists. Does nothing outside a runtime.
    pub(super) fn start(&self) {
        let me = self.me.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(drain(me));
        }
    }

    /// Uploads a change and records that it is in the bucket.
    async fn upload_change(&self, key: &ObjectKey, change: &Change) -> Result<()> {
        let takes_object = change.object.is_none() || change.base != Precondition::Absent;
        // The bucket may have a new object of which a loss of power took the record, because a listing of the bucket
        // shows it. Objects with keys that are used once are not discovered by listings, so their records are synced
        // first.
        let needs_no_record = change.is_only_record && !self.options.keys_are_used_once;
        if takes_object || !(needs_no_record || change.is_synced()) {
            // The record that makes the replaced object unnecessary may be an earlier or a later one, and must not be
            // lost once the object is gone. Nor may the log lose a change that the bucket has.
            self.sync_log().await?;
        }
        let resolution = match self.bucket.apply(key, change, change.base.clone()).await {
            Ok(etag) => Ok(UploadResult::Uploaded(etag)),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                self.resolve_conflict(key, change).await
            }
            Err(error) => Err(error),
        };
        let resolution = match resolution {
            // A key that is used once has no other object to give way to, and names refer to it: its bytes stay in
            // the log.
            Err(error)
                if is_refusal(&error)
                    && change.failures + 1 >= REFUSALS_MAX
                    && !self.options.keys_are_used_once =>
            {
                self.set_aside_refused(key, change, error).await?
            }
            resolution => resolution?,
        };
        match resolution {
            UploadResult::Uploaded(etag) => self.complete_change(key, change, etag),
            UploadResult::Aside => self.complete_aside(key, change),
        }
        Ok(())
    }

    /// Records in the log that a change was uploaded, so that a restart does not upload it again.
    fn note_done(&self, key: &ObjectKey, change: &Change, etag: Option<ETag>) {
        let done = Record::Done { change: change.number, key: key.clone(), etag };
        if let Err(error) = log_record::append(&self.log, &done, &Payload::default()) {
            // After a crash the change is uploaded once more and recognised in the bucket. Keeping the change for
            // that would keep a full disk full.
            tracing::warn!(%key, %error, "the write-back log cannot record that a change was uploaded; a restart may upload it again");
        }
        self.pending().unsynced.note(key, &self.log);
        self.activity.unsynced_uploads.store(true, Ordering::Release);
    }

    /// Completes a change that is in the bucket, where the object has this etag. The caller's change keeps its record in the log
    /// until the etag is reported.
    fn complete_change(&self, key: &ObjectKey, change: &Change, etag: Option<ETag>) {
        let lock = self.lock_changes();
        self.note_done(key, change, etag.clone());
        if let (Some(object), Some(bucket)) = (&change.object, &etag) {
            // Before the change is removed: the next reader asks the bucket by this etag.
            self.etags.aliases().remember(key, object.description.etag.clone(), bucket.clone());
        }
        self.pending().complete(key, change.number, etag);
        drop(lock);
        self.etags.report(key);
        self.activity.uploaded.fetch_add(1, Ordering::AcqRel);
    }

    /// Completes a change whose object was stored under another key. A newer change meets the same foreign object.
    fn complete_aside(&self, key: &ObjectKey, change: &Change) {
        let lock = self.lock_changes();
        self.note_done(key, change, None);
        self.pending().set_aside(key, change.number);
        drop(lock);
        self.activity.uploaded.fetch_add(1, Ordering::AcqRel);
        self.conflicts.report_resolved(key);
    }

    /// Completes a tried change that replaces an object it is made of, if the bucket has it already: the process
    /// ended, or the answer was lost. The replaced bytes are gone then, so the object can only be read from the
    /// bucket.
    pub(super) async fn complete_if_uploaded(&self, key: &ObjectKey) -> Result<()> {
        let tried = self.pending().get(key).filter(|change| change.may_have_replaced_source(key)).cloned();
        let Some(change) = tried else { return Ok(()) };
        let found = match self.bucket.store.head(key).await {
            Err(StoreError::NotFound(_)) => return Ok(()),
            found => found?,
        };
        let Some(object) = &change.object else { return Ok(()) };
        if object.is_made_of(&found.object) {
            return Ok(());
        }
        let is_ours = self.bucket.is_ours(Some(&found), Some(object)).await?;
        if is_ours && self.pending().is_newest_and_idle(key, change.number) {
            self.complete_change(key, &change, Some(found.object.etag));
        }
        Ok(())
    }

    /// Removes segments of the log that no change needs, if that is worthwhile.
    async fn reclaim(&self) {
        let is_due = self.log.is_worth_reclaiming() || self.log.bytes() > self.options.limit_bytes / 2;
        let Some(me) = self.me.upgrade().filter(|_| is_due) else { return };
        if let Err(error) = blocking(move || me.log.reclaim()).await {
            tracing::warn!(%error, "cannot remove segments of the write-back log that are not needed any more; they take disk space until the next attempt");
        }
    }
}

/// Decides what is uploaded next, and when.
struct Schedule<'w>(&'w Writeback);

impl Schedule<'_> {
    /// Returns the time until the next change is due; `None` if none is pending or all are being uploaded.
    fn due_in(&self) -> Option<Duration> {
        let pending = self.0.pending();
        let fresh = pending.oldest_untried_at().map(|oldest| match self.0.is_urgent(pending.len()) {
            true => Duration::ZERO,
            false => self.0.options.delay.saturating_sub(self.0.stamps.clock.now().since(oldest)),
        });
        let again = pending.retry_at().map(|at| at.saturating_duration_since(Instant::now()));
        fresh.into_iter().chain(again).min()
    }

    /// Returns how many uploads may run now: few while changes are still coming, many if the log fills up.
    fn upload_limit(&self) -> usize {
        let (now, pending) = (self.0.stamps.clock.now(), self.0.pending());
        let is_since = |at: Option<Timestamp>, age: Duration| at.is_some_and(|at| now.since(at) < age);
        if self.0.is_urgent(pending.len()) {
            CONCURRENT_UPLOADS.1
        } else if is_since(pending.newest_at(), BUSY_FOR)
            && is_since(pending.oldest_untried_at(), BUSY_AGE_MAX)
        {
            1
        } else {
            (CONCURRENT_UPLOADS.0 + pending.len() / CHANGES_PER_EXTRA_UPLOAD).min(CONCURRENT_UPLOADS.1)
        }
    }

    /// Returns the oldest change of a deadlock, in which all changes wait for each other's sources; `None` if no change
    /// is due or there is no deadlock.
    fn find_due_deadlock(&self) -> Option<(ObjectKey, Change)> {
        self.due_in().filter(Duration::is_zero)?;
        self.0.pending().find_deadlocked()
    }

    /// Takes the change to upload next; `None` if none can be uploaded now.
    fn take_next_due(&self) -> Option<(ObjectKey, Change)> {
        let _lock = self.0.lock_changes();
        self.0.pending().take_next(Instant::now())
    }

    /// Breaks a deadlock, in which all changes wait for each other's sources: copies the bytes that the oldest change
    /// is made of into the log. If only an earlier change of the key is made of objects, that change is forgotten, and is not recognized in
    /// the bucket any more. If another client has replaced the objects, no change waits for them any more.
    async fn break_deadlock(&self, key: &ObjectKey, change: &Change) -> Result<()> {
        let made_of_objects = |object: &&Arc<PendingObject>| !object.sources().is_empty();
        let Some(object) = change.object.as_ref().filter(made_of_objects) else {
            self.0.pending().forget_earlier_attempts(key);
            return Ok(());
        };
        let mut extents = Vec::new();
        let size = object.size_bytes();
        for start in (0..size).step_by(PART_BYTES as usize) {
            let body = match self.0.bucket.read(object, start..size.min(start + PART_BYTES)).await {
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                    self.0.pending().forget_sources(key);
                    return Ok(());
                }
                body => body?,
            };
            extents.extend(self.0.append_bytes(&body).await?);
        }
        let same = Precondition::Matches(object.description.etag.clone());
        let condition = Condition { precondition: &same, read: None };
        let object = NewObject::new(object.description.clone(), extents);
        self.0.make_change(key, &condition, Some(object), Payload::default()).await
    }
}

/// Uploads pending changes when they are due, until the store is dropped.
async fn drain(me: Weak<Writeback>) {
    let mut sending = JoinSet::new();
    let mut wait = RETRY_DELAYS.0;
    let mut synced_at = Instant::now();
    loop {
        let Some(writeback) = me.upgrade() else { return };
        if synced_at.elapsed() >= SYNCED_AFTER {
            sync_uploads(&writeback).await;
            synced_at = Instant::now();
        }
        let schedule = Schedule(&writeback);
        let upload_limit = schedule.upload_limit();
        while sending.len() < upload_limit
            && schedule.due_in().is_some_and(|due| due.is_zero())
            && let Some((key, change)) = schedule.take_next_due()
        {
            writeback.activity.in_flight.fetch_add(1, Ordering::AcqRel);
            sending.spawn(upload_one(writeback.clone(), key, change));
        }
        let deadlocked = if sending.is_empty() { schedule.find_due_deadlock() } else { None };
        if let Some((key, change)) = deadlocked {
            if let Err(error) = schedule.break_deadlock(&key, &change).await {
                tracing::warn!(%key, %error, "cannot copy the bytes that a change takes from objects of the bucket into the write-back log; retrying");
                tokio::time::sleep(wait).await;
            }
            continue;
        }
        let drain_wake = writeback.activity.wake.clone();
        let is_unsynced = writeback.activity.unsynced_uploads.load(Ordering::Acquire);
        let until_sync = SYNCED_AFTER.saturating_sub(synced_at.elapsed());
        let due = schedule.due_in().unwrap_or(IDLE_MAX).clamp(IDLE_MIN, IDLE_MAX);
        drop(writeback);
        tokio::select! {
            biased;
            Some(outcome) = sending.join_next() => {
                let is_answered = |outcome: Result<Attempt, _>| outcome.is_ok_and(|sent| sent != Attempt::Failed);
                let mut is_well = is_answered(outcome);
                // Uploads that failed together failed for the same reason and cost one delay.
                while let Some(outcome) = sending.try_join_next() {
                    is_well |= is_answered(outcome);
                }
                if is_well {
                    wait = RETRY_DELAYS.0;
                } else {
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(RETRY_DELAYS.1);
                }
            }
            () = drain_wake.notified() => {}
            () = tokio::time::sleep(until_sync), if is_unsynced => {}
            () = tokio::time::sleep(due), if sending.len() < upload_limit => {}
        }
    }
}

/// Makes the records of uploads survive the loss of power. Without its record, a change is uploaded again, which would bring back an object
/// that another client has deleted meanwhile.
async fn sync_uploads(writeback: &Writeback) {
    if writeback.activity.unsynced_uploads.swap(false, Ordering::AcqRel)
        && let Err(error) = writeback.sync_log().await
    {
        writeback.activity.unsynced_uploads.store(true, Ordering::Release);
        tracing::warn!(%error, "cannot sync the write-back log; after a loss of power, changes may be uploaded again");
    }
}

/// Uploads a change; after a failure it is scheduled again.
async fn upload_one(writeback: Arc<Writeback>, key: ObjectKey, change: Change) -> Attempt {
    let sent = writeback.upload_change(&key, &change).await;
    let (number, failures) = (change.number, change.failures);
    drop(change);
    writeback.activity.in_flight.fetch_sub(1, Ordering::AcqRel);
    let outcome = match &sent {
        Ok(()) => Attempt::Uploaded,
        Err(error) => {
            let is_refused = is_refusal(error);
            if is_refused && failures == 0 {
                tracing::error!(%key, %error, "the bucket refuses a change; it stays in the write-back log and is retried, and other changes are uploaded");
            } else {
                tracing::warn!(%key, %error, failures, "a change cannot be uploaded; it stays in the write-back log and is retried");
            }
            let until = Instant::now() + retry_delay(failures, is_refused);
            writeback.pending().schedule_retry(&key, number, until, is_refused);
            if is_refused { Attempt::Refused } else { Attempt::Failed }
        }
    };
    writeback.reclaim().await;
    if writeback.notes.hold_old_segments(&writeback.log) {
        writeback.trim_notes();
    }
    // Waiters look at the state after the attempt has ended.
    writeback.activity.progress.notify_waiters();
    outcome
}

/// Returns the delay of a change after this many failed attempts.
fn retry_delay(failures: u32, is_refused: bool) -> Duration {
    let longest = if is_refused { REFUSED_DELAY_MAX } else { RETRY_DELAYS.1 };
    RETRY_DELAYS.0.saturating_mul(1 << failures.min(16)).min(longest)
}

/// Returns whether the bucket would refuse the same change again, and only this change.
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
