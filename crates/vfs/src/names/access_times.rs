//! Access times: recorded in memory, included in answers, and committed to the namespace in batches, so that reads need no
//! commit each.
//!
//! Invariant: an access time that a program sets is never overwritten by an earlier read.

use meta::{Ino, Inode, Op};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::Timestamp;

/// Maximum pending times. At this number they are committed at once.
pub(crate) const PENDING_MAX: usize = 8192;
/// Maximum times to commit at once. No other can be recorded meanwhile.
const BATCH: usize = 256;
/// Age at which [`Atime::Relatime`] renews an access time (mount(8)).
const RENEWED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Access times that are not yet committed to the namespace.
#[derive(Debug, Default)]
pub(crate) struct AccessTimes(Mutex<BTreeMap<Ino, Timestamp>>);

impl AccessTimes {
    /// Records an access time. Returns the number of pending times.
    pub(crate) fn record(&self, ino: Ino, at: Timestamp) -> usize {
        let mut pending = self.lock();
        pending.insert(ino, at);
        pending.len()
    }

    /// Returns the inode with its pending access time.
    pub(crate) fn overlay(&self, mut inode: Inode) -> Inode {
        if let Some(at) = self.lock().get(&inode.ino) {
            inode.atime = *at;
        }
        inode
    }

    /// Discards the pending time of an inode, and runs `work`, which sets its time, before another can be recorded.
    pub(crate) fn discard_for<T>(&self, ino: Ino, work: impl FnOnce() -> T) -> T {
        let mut pending = self.lock();
        pending.remove(&ino);
        work()
    }

    /// Commits a batch of pending times by `work`. Returns whether more are pending.
    pub(super) fn flush_batch<E>(&self, work: impl FnOnce(Vec<Op>) -> Result<(), E>) -> Result<bool, E> {
        let mut pending = self.lock();
        let batch: Vec<(Ino, Timestamp)> = pending.iter().take(BATCH).map(|(ino, at)| (*ino, *at)).collect();
        if !batch.is_empty() {
            work(batch.iter().map(|(ino, atime)| Op::Accessed { ino: *ino, atime: *atime }).collect())?;
        }
        for (ino, _) in batch {
            pending.remove(&ino);
        }
        Ok(!pending.is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ino, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether [`crate::Atime::Relatime`] renews the access time of an inode that is read at `now`.
pub(crate) fn is_due(inode: &Inode, now: Timestamp) -> bool {
    inode.atime <= inode.mtime || inode.atime <= inode.ctime || now.since(inode.atime) >= RENEWED_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_committed_in_batches_and_kept_on_errors() {
        let times = AccessTimes::default();
        for ino in 0..300 {
            assert_eq!(times.record(Ino(ino), Timestamp(7)), ino as usize + 1);
        }
        times.discard_for(Ino(5), || ());
        assert_eq!(times.flush_batch(|_| Err("down")), Err("down"));
        let mut named = 0;
        let mut commit = || {
            times.flush_batch(|ops| {
                named += ops.len();
                Ok::<_, ()>(())
            })
        };
        assert_eq!((commit(), commit(), commit()), (Ok(true), Ok(false), Ok(false)));
        assert_eq!(named, 299);
    }
}
