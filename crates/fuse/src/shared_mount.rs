//! The state of one mount of a file system that has several mounts.
//!
//! The kernels of several mounts do not learn of each other's changes, so none of them caches anything: names and attributes are
//! requested each time, reads and writes bypass the page cache, and the file system keeps the locks. If a kernel's connection is
//! cut, the other mounts go on, so everything that this kernel held must be released. The state records what the kernel holds:
//! references, open files and open directories.

use fuser::InitFlags;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle as Runtime;
use vfs::{Filesystem, Handle, Ino};

/// Capabilities that a shared mount does not request: attributes in a listing are useless if the kernel must look them up again.
pub(crate) const UNWANTED_CAPABILITIES: [InitFlags; 2] =
    [InitFlags::FUSE_DO_READDIRPLUS, InitFlags::FUSE_READDIRPLUS_AUTO];

/// The number of shared mounts made by this process so far, from which each gets its session number.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// Returns a number for the lock owners of a mount.
pub(crate) fn new_session() -> u64 {
    SESSIONS.fetch_add(1, Ordering::Relaxed)
}

/// State that the kernel of one shared mount holds.
#[derive(Debug)]
pub(crate) struct SharedMount {
    /// The number that distinguishes this mount's lock owners from those of other mounts.
    session: u64,
    state: Mutex<HeldByKernel>,
}

#[derive(Debug, Default)]
struct HeldByKernel {
    /// Number of references, by inode.
    references: HashMap<Ino, u64>,
    /// Open files, each with its inode.
    files: HashMap<Handle, Ino>,
    directories: HashSet<Handle>,
}

impl SharedMount {
    pub(crate) fn new() -> Self {
        Self { session: new_session(), state: Mutex::default() }
    }

    /// Returns the number that distinguishes this mount's lock owners from those of other mounts.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// Records that the kernel got a reference to an inode.
    pub(crate) fn add_reference(&self, ino: Ino) {
        *self.state().references.entry(ino).or_default() += 1;
    }

    /// Records that the kernel dropped references to an inode.
    pub(crate) fn drop_references(&self, ino: Ino, count: u64) {
        let mut state = self.state();
        let Some(left) = state.references.get_mut(&ino) else { return };
        *left = left.saturating_sub(count);
        if *left == 0 {
            state.references.remove(&ino);
        }
    }

    pub(crate) fn add_file(&self, handle: Handle, ino: Ino) {
        self.state().files.insert(handle, ino);
    }

    pub(crate) fn add_directory(&self, handle: Handle) {
        self.state().directories.insert(handle);
    }

    pub(crate) fn remove_directory(&self, handle: Handle) {
        self.state().directories.remove(&handle);
    }

    /// Forgets an open file whose last descriptor was closed.
    pub(crate) fn remove_file(&self, handle: Handle) {
        self.state().files.remove(&handle);
    }

    /// Releases all that the kernel held, after its connection has ended.
    pub(crate) fn release_all(&self, fs: &Arc<Filesystem>, runtime: &Runtime) {
        let HeldByKernel { references, files, directories } = std::mem::take(&mut *self.state());
        let (locks, session) = (Arc::clone(fs), self.session);
        drop(runtime.spawn(async move {
            if let Err(error) = locks.locks().end_front_end(session).await {
                tracing::warn!("cannot release the locks of a mount that has ended: {error}");
            }
        }));
        directories.into_iter().for_each(|handle| fs.releasedir(handle));
        for handle in files.into_keys() {
            let fs = Arc::clone(fs);
            drop(runtime.spawn(async move {
                if let Err(error) = fs.release(handle).await {
                    tracing::warn!(
                        "cannot store a file that was open when its mount ended; its last writes may be lost: {error}"
                    );
                }
            }));
        }
        references.into_iter().for_each(|(ino, count)| fs.forget(ino, count));
    }

    fn state(&self) -> MutexGuard<'_, HeldByKernel> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
