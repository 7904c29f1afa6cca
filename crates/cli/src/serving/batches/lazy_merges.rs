//! The batches that were submitted to be merged in the background (`tenon batch end --lazy`).

use super::open_batch::OpenBatch;
use meta::BatchId;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use vfs::PendingMerge;

/// Bounds of the time after which a merge that has failed is tried again. The time is doubled with each failure.
const RETRY_MIN: Duration = Duration::from_secs(10);
const RETRY_MAX: Duration = Duration::from_secs(600);

/// Submitted batches whose merges have not begun, or have failed.
#[derive(Debug, Default)]
pub(crate) struct LazyMerges {
    waiting: Mutex<BTreeMap<BatchId, (Instant, Submitted)>>,
    /// Notified when a batch was added.
    added: Notify,
}

/// A submitted batch.
#[derive(Debug, Default)]
pub(super) struct Submitted {
    /// The open namespace; `None` after a failure, or after another mount.
    pub(super) batch: Option<OpenBatch>,
    /// The wait of accesses to the directory for the merge; `None` after a failure.
    pub(super) wait: Option<PendingMerge>,
    /// Number of attempts that have failed.
    pub(super) failures: u32,
    /// The reason of the last failure.
    pub(super) reason: Option<String>,
}

impl LazyMerges {
    /// Adds a batch. Its merge is due at once, or some time after a failure.
    pub(super) fn add(&self, id: BatchId, submitted: Submitted) {
        let due = Instant::now() + retry_delay(submitted.failures);
        self.lock().insert(id, (due, submitted));
        self.added.notify_one();
    }

    /// Takes a batch out of the list.
    pub(super) fn take(&self, id: BatchId) -> Option<Submitted> {
        self.lock().remove(&id).map(|(_, submitted)| submitted)
    }

    /// Takes all batches out of the list.
    pub(super) fn take_all(&self) -> Vec<(BatchId, Submitted)> {
        let all = std::mem::take(&mut *self.lock());
        all.into_iter().map(|(id, (_, submitted))| (id, submitted)).collect()
    }

    pub(super) fn contains(&self, id: BatchId) -> bool {
        self.lock().contains_key(&id)
    }

    /// Returns why the last attempt to merge a batch has failed.
    pub(super) fn reason(&self, id: BatchId) -> Option<String> {
        self.lock().get(&id).and_then(|(_, submitted)| submitted.reason.clone())
    }

    /// Waits until the merge of a batch is due. The batch stays in the list.
    pub(crate) async fn next_due(&self) -> BatchId {
        loop {
            let next = self.lock().iter().map(|(id, (due, _))| (*due, *id)).min();
            match next {
                None => self.added.notified().await,
                Some((due, id)) if due <= Instant::now() => return id,
                Some((due, _)) => {
                    tokio::select! {
                        () = self.added.notified() => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BatchId, (Instant, Submitted)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time after which a merge is tried again that has failed a number of times.
fn retry_delay(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => RETRY_MIN.saturating_mul(1 << doublings.min(16)).min(RETRY_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failed_merge_is_due_later() {
        let merges = LazyMerges::default();
        let begin = Instant::now();
        merges.add(BatchId(1), Submitted { failures: 2, ..Submitted::default() });
        merges.add(BatchId(2), Submitted::default());
        assert_eq!(merges.next_due().await, BatchId(2));
        assert!(merges.take(BatchId(2)).is_some() && begin.elapsed() < RETRY_MIN);
        assert_eq!(merges.next_due().await, BatchId(1));
        assert!(begin.elapsed() >= 2 * RETRY_MIN);
        assert_eq!([0, 1, 3, 99].map(retry_delay).map(|delay| delay.as_secs()), [0, 10, 40, 600]);
    }
}
