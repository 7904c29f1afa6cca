//! Room in the log: who changes something waits for it while something goes up, and not for ever.

use super::Writeback;
use crate::{Result, StoreError, blocking};
use std::sync::atomic::Ordering;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// Since when somebody has waited without a change going up.
pub(super) struct Wait {
    since: Instant,
    went_up: u64,
    has_asked: bool,
    /// Nothing was left to go up, which may have been so only since the log was tried.
    is_last: bool,
}

impl Writeback {
    /// Waits while the log is too long for so many bytes more, or too many changes wait.
    pub(super) async fn admit(&self, bytes: u64) -> Result<()> {
        let mut wait = self.begin_wait();
        loop {
            let lighter = self.lighter.notified();
            let (waiting, limits) = (self.pending().len(), &self.options);
            let has_room = self.log.bytes() + bytes <= limits.limit_bytes && waiting < limits.limit_changes;
            if has_room || waiting == 0 {
                return Ok(());
            }
            self.wait_for_room("the write-back log is full".into(), lighter, &mut wait).await?;
        }
    }

    /// From now on nothing has gone up.
    pub(super) fn begin_wait(&self) -> Wait {
        Wait {
            since: Instant::now(),
            went_up: self.went_up.load(Ordering::Acquire),
            has_asked: false,
            is_last: false,
        }
    }

    /// The same where the disk is full: what notes keep of it is asked for first.
    pub(super) async fn wait_for_disk(
        &self,
        full: String,
        lighter: Notified<'_>,
        wait: &mut Wait,
    ) -> Result<()> {
        if !std::mem::replace(&mut wait.has_asked, true)
            && let Some(me) = self.me.upgrade()
            && me.forget_all_notes().await
        {
            return Ok(());
        }
        if self.log.last_unneeded().is_some()
            && let Some(me) = self.me.upgrade()
            && blocking(move || me.log.reclaim()).await.is_ok()
        {
            return Ok(());
        }
        self.wait_for_room(full, lighter, wait).await
    }

    /// Waits until something may have gone up; an error if nothing can, or nothing has for too long. Attempts that fail
    /// are nothing.
    pub(super) async fn wait_for_room(
        &self,
        full: String,
        lighter: Notified<'_>,
        wait: &mut Wait,
    ) -> Result<()> {
        let now = self.begin_wait();
        if now.went_up != wait.went_up {
            // There may be room already.
            *wait = Wait { has_asked: wait.has_asked, ..now };
            return Ok(());
        }
        if self.pending().len() == 0 && self.sending.load(Ordering::Acquire) == 0 {
            let was_last = std::mem::replace(&mut wait.is_last, true);
            return if was_last { Err(StoreError::Full(full)) } else { Ok(()) };
        }
        self.woken.notify_one();
        let outcome = tokio::time::timeout_at(wait.since + self.options.patience, lighter).await;
        outcome.map_err(|_| StoreError::Full(format!("{full}, and nothing goes up to the bucket")))
    }
}
