//! When things were last read: noted in memory, told to whoever asks, and named together now and then, so that no
//! read is a change of the namespace.
//!
//! Invariant: a time that is set by hand is never overwritten by a read from before.

use meta::{Ino, Inode, Op};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::Timestamp;

use crate::{Filesystem, Result};

/// When reading something changes its access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Atime {
    /// Whenever the read reaches the file system.
    Strict,
    /// When it is older than the last change, or than a day.
    #[default]
    Relatime,
    /// Never.
    Off,
}

/// What a crash loses of times at most.
const FLUSH_INTERVAL: Duration = Duration::from_secs(60);
/// So many times wait; then they are named at once.
const PENDING_MAX: usize = 8192;
/// Times named while nobody can note another.
const BATCH: usize = 256;
/// An older access time is renewed under [`Atime::Relatime`] (mount(8)).
const RENEWED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Access times that the namespace has not heard of.
#[derive(Debug, Default)]
pub(crate) struct AccessTimes(Mutex<BTreeMap<Ino, Timestamp>>);

impl AccessTimes {
    /// How many wait now, the new one included.
    fn record(&self, ino: Ino, at: Timestamp) -> usize {
        let mut pending = self.lock();
        pending.insert(ino, at);
        pending.len()
    }

    /// The inode as programs see it.
    pub(crate) fn overlay(&self, mut inode: Inode) -> Inode {
        if let Some(at) = self.lock().get(&inode.ino) {
            inode.atime = *at;
        }
        inode
    }

    /// Does something that sets the time of an inode by hand.
    pub(crate) fn discard_for<T>(&self, ino: Ino, work: impl FnOnce() -> T) -> T {
        let mut pending = self.lock();
        pending.remove(&ino);
        work()
    }

    /// Names some, and says whether there are more.
    fn flush_batch<E>(&self, work: impl FnOnce(Vec<Op>) -> Result<(), E>) -> Result<bool, E> {
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

impl Filesystem {
    /// Somebody reads an inode; returns whether that changes its access time.
    pub(crate) fn record_access(&self, ino: Ino) -> bool {
        let now = self.now();
        let is_due = match self.config.atime {
            _ if self.config.read_only => false,
            Atime::Off => false,
            Atime::Strict => true,
            Atime::Relatime => self.names.inode(ino).is_ok_and(|inode| is_due(&self.seen(inode), now)),
        };
        if !is_due {
            return false;
        }
        match self.access_times.record(ino, now) {
            1 => self.flush_access_times_later(),
            pending if pending >= PENDING_MAX => self.try_flush_access_times(),
            _ => {}
        }
        true
    }

    /// Tells the namespace every access time.
    pub(crate) fn flush_access_times(&self) -> Result<()> {
        // An inode that is gone needs none, and its op has failed by itself.
        let name = |ops: Vec<Op>| self.names.commit_all(&self.ctx(), &ops).map(drop);
        while self.access_times.flush_batch(name)? {}
        Ok(())
    }

    fn try_flush_access_times(&self) {
        if let Err(error) = self.flush_access_times() {
            tracing::warn!(%error, "access times are not kept; they are tried again");
        }
    }

    fn flush_access_times_later(&self) {
        let me = self.me.clone();
        tokio::spawn(async move {
            tokio::time::sleep(FLUSH_INTERVAL).await;
            if let Some(me) = me.upgrade() {
                me.try_flush_access_times();
            }
        });
    }
}

fn is_due(inode: &Inode, now: Timestamp) -> bool {
    inode.atime <= inode.mtime || inode.atime <= inode.ctime || now.since(inode.atime) >= RENEWED_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_named_in_batches_and_stay_until_they_are() {
        let times = AccessTimes::default();
        for ino in 0..300 {
            assert_eq!(times.record(Ino(ino), Timestamp(7)), ino as usize + 1);
        }
        times.discard_for(Ino(5), || ());
        assert_eq!(times.flush_batch(|_| Err("down")), Err("down"));
        let mut named = 0;
        let mut name = || {
            times.flush_batch(|ops| {
                named += ops.len();
                Ok::<_, ()>(())
            })
        };
        assert_eq!((name(), name(), name()), (Ok(true), Ok(false), Ok(false)));
        assert_eq!(named, 299);
    }
}
