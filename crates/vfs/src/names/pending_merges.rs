//! Directories whose submitted batches are not merged yet. Programs that access one of them, or what is below it, wait for its merge.
//!
//! A lookup of the directory itself does not wait. The kernel would hold the lock of the parent meanwhile, so that other programs could not use
//! the parent.
//!
//! Invariant: an access waits only while its directory is in the list, so that a merge that fails does not delay accesses forever.

use meta::{Ino, Namespace};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The directories whose merges accesses wait for.
#[derive(Debug, Default)]
pub(crate) struct PendingMerges {
    /// Each directory with a channel that is closed at the end of the wait.
    dirs: Mutex<BTreeMap<Ino, watch::Receiver<()>>>,
    /// The number of directories. Almost always zero, so that accesses take no lock.
    count: AtomicUsize,
}

/// Keeps accesses to a directory, and to what is below it, waiting until it is dropped.
#[derive(Debug)]
pub struct PendingMerge {
    all: Arc<PendingMerges>,
    dir: Ino,
    _waiters: watch::Sender<()>,
}

impl PendingMerges {
    /// Makes accesses to a directory, and to what is below it, wait until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>, dir: Ino) -> PendingMerge {
        let (sender, receiver) = watch::channel(());
        self.change(|dirs| {
            dirs.insert(dir, receiver);
        });
        PendingMerge { all: Arc::clone(self), dir, _waiters: sender }
    }

    /// Waits until no merge is pending of a directory that is, or contains, an inode.
    pub(crate) async fn wait(&self, tables: &Namespace, ino: Ino) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        Box::pin(async {
            while let Some(mut pending) = self.above(tables, ino) {
                // Fails once the merge has ended.
                while pending.changed().await.is_ok() {}
            }
        })
        .await;
    }

    /// Returns the channel of the directory that is, or contains, an inode; `None` if no merge of it is pending.
    fn above(&self, tables: &Namespace, ino: Ino) -> Option<watch::Receiver<()>> {
        let mut dir = ino;
        loop {
            if let Some(pending) = self.dirs().get(&dir) {
                return Some(pending.clone());
            }
            dir = tables.inode(dir).ok()?.home?.0;
        }
    }

    /// Changes the list.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<Ino, watch::Receiver<()>>)) {
        let mut dirs = self.dirs();
        change(&mut dirs);
        self.count.store(dirs.len(), Ordering::Release);
    }

    fn dirs(&self) -> MutexGuard<'_, BTreeMap<Ino, watch::Receiver<()>>> {
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingMerge {
    fn drop(&mut self) {
        // The waiters, which wake up after this, look at the list again.
        self.all.change(|dirs| {
            dirs.remove(&self.dir);
        });
    }
}
