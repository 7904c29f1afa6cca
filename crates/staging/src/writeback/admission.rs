//! Admission control: a change waits for room in the log while changes are being uploaded, and fails if none is for
//! too long.

use super::Writeback;
use std::sync::atomic::Ordering;
use store::{Result, StoreError, blocking};
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// A wait for room, measured from the last upload.
pub(super) struct SpaceWait {
    /// The time of the last upload, or of the beginning of the wait.
    since: Instant,
    uploaded: u64,
    has_trimmed_notes: bool,
    /// Nothing was left to upload at the last look. The log may have got room since, so it is tried once more.
    had_nothing_left: bool,
}

impl Writeback {
    /// Waits while the log has no room for this many more bytes, or too many changes are pending. If no change is
    /// pending the call succeeds.
    pub(super) async fn admit(&self, bytes: u64) -> Result<()> {
        let mut wait = self.begin_wait();
        loop {
            let progress = self.activity.progress.notified();
            let (pending, limits) = (self.pending().len(), &self.options);
            let has_room = self.log.bytes() + bytes <= limits.limit_bytes && pending < limits.limit_changes;
            if has_room || pending == 0 {
                return Ok(());
            }
            self.wait_for_room("the write-back log is full".into(), progress, &mut wait).await?;
        }
    }

    /// Returns the state at the beginning of a wait for room in the log.
    pub(super) fn begin_wait(&self) -> SpaceWait {
        SpaceWait {
            since: Instant::now(),
            uploaded: self.activity.uploaded.load(Ordering::Acquire),
            has_trimmed_notes: false,
            had_nothing_left: false,
        }
    }

    /// Waits for room on a full disk. First asks the owner of the notes to forget them, and removes segments that are
    /// not needed.
    pub(super) async fn wait_for_disk(
        &self,
        full: String,
        progress: Notified<'_>,
        wait: &mut SpaceWait,
    ) -> Result<()> {
        if !std::mem::replace(&mut wait.has_trimmed_notes, true)
            && let Some(me) = self.me.upgrade()
            && me.request_trim().await
        {
            return Ok(());
        }
        if self.log.last_unneeded().is_some()
            && let Some(me) = self.me.upgrade()
            && blocking(move || me.log.reclaim()).await.is_ok()
        {
            return Ok(());
        }
        self.wait_for_room(full, progress, wait).await
    }

    /// Waits until something may have been uploaded. Fails if nothing is left to upload, or if nothing was for too
    /// long; failed attempts do not count.
    pub(super) async fn wait_for_room(
        &self,
        full: String,
        progress: Notified<'_>,
        wait: &mut SpaceWait,
    ) -> Result<()> {
        let now = self.begin_wait();
        if now.uploaded != wait.uploaded {
            // Something was uploaded, so there may be room already. The names may also have noted its new etag, and the note can be trimmed.
            *wait = now;
            return Ok(());
        }
        if self.pending().len() == 0 && self.activity.in_flight.load(Ordering::Acquire) == 0 {
            let was_last = std::mem::replace(&mut wait.had_nothing_left, true);
            return if was_last { Err(StoreError::Full(full)) } else { Ok(()) };
        }
        self.activity.wake.notify_one();
        let outcome = tokio::time::timeout_at(wait.since + self.options.patience, progress).await;
        outcome.map_err(|_| StoreError::Full(format!("{full}, and no change reaches the bucket")))
    }
}
