//! Room in the log: who changes something waits for it while something goes up, and not for ever.

use super::Writeback;
use crate::{Result, StoreError, blocking};
use std::sync::atomic::Ordering;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// Since when somebody has waited without a change going up.
pub(super) struct SpaceWait {
    since: Instant,
    uploaded: u64,
    has_trimmed_notes: bool,
    /// Nothing was left to go up, which may have been so only since the log was tried.
    had_nothing_left: bool,
}

impl Writeback {
    /// Waits while the log is too long for so many bytes more, or too many changes wait.
    pub(super) async fn admit(&self, bytes: u64) -> Result<()> {
        let mut wait = self.begin_wait();
        loop {
            let progress = self.progress.notified();
            let (pending, limits) = (self.pending().len(), &self.options);
            let has_room = self.log.bytes() + bytes <= limits.limit_bytes && pending < limits.limit_changes;
            if has_room || pending == 0 {
                return Ok(());
            }
            self.wait_for_room("the write-back log is full".into(), progress, &mut wait).await?;
        }
    }

    /// From now on nothing has gone up.
    pub(super) fn begin_wait(&self) -> SpaceWait {
        SpaceWait {
            since: Instant::now(),
            uploaded: self.uploaded.load(Ordering::Acquire),
            has_trimmed_notes: false,
            had_nothing_left: false,
        }
    }

    /// The same where the disk is full: what notes keep of it is asked for first.
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

    /// Waits until something may have gone up; an error if nothing can, or nothing has for too long. Attempts that fail
    /// are nothing.
    pub(super) async fn wait_for_room(
        &self,
        full: String,
        progress: Notified<'_>,
        wait: &mut SpaceWait,
    ) -> Result<()> {
        let now = self.begin_wait();
        if now.uploaded != wait.uploaded {
            // There may be room already.
            *wait = SpaceWait { has_trimmed_notes: wait.has_trimmed_notes, ..now };
            return Ok(());
        }
        if self.pending().len() == 0 && self.in_flight.load(Ordering::Acquire) == 0 {
            let was_last = std::mem::replace(&mut wait.had_nothing_left, true);
            return if was_last { Err(StoreError::Full(full)) } else { Ok(()) };
        }
        self.woken.notify_one();
        let outcome = tokio::time::timeout_at(wait.since + self.options.patience, progress).await;
        outcome.map_err(|_| StoreError::Full(format!("{full}, and nothing goes up to the bucket")))
    }
}
