//! The state of one mount of a file system that has several mounts.
//!
//! The kernels of several mounts do not learn of each other's changes, so none of them caches anything: names and attributes are
//! requested each time, reads and writes bypass the page cache, and the file system keeps the locks. If a kernel's connection is
//! cut, the other mounts go on, so everything that this kernel held must be released. The state records what the kernel holds:
//! references, open files and open directories.

use crate::convert;
use fuser::{INodeNo, InitFlags, LockOwner};
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

/// State that the kernel of one shared mount holds.
#[derive(Debug)]
pub(crate) struct SharedMount {
    session: u64,
    state: Mutex<HeldByKernel>,
}

#[derive(Debug, Default)]
struct HeldByKernel {
    references: HashMap<Ino, u64>,
    files: HashMap<Handle, Ino>,
    directories: HashSet<Handle>,
}

impl SharedMount {
    pub(crate) fn new() -> Self {
        Self { session: SESSIONS.fetch_add(1, Ordering::Relaxed), state: Mutex::default() }
    }

    /// Returns the file system's id of a lock owner, made of the session and the kernel's number of the owner.
    pub(crate) fn owner(&self, owner: LockOwner) -> vfs::LockOwner {
        vfs::LockOwner { session: self.session, id: owner.0 }
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

    /// Releases all locks that a process has on a file: POSIX ends them when it closes any descriptor of the file.
    pub(crate) fn release_owner_locks(
        &self,
        fs: &Filesystem,
        handle: Handle,
        ino: INodeNo,
        owner: LockOwner,
    ) {
        let ino = convert::ino(ino);
        fs.locks().release_all(ino, self.owner(owner));
        fs.locks().may_end(ino, handle);
    }

    /// Forgets an open file whose last descriptor was closed, and releases its locks.
    pub(crate) fn remove_file(&self, fs: &Filesystem, handle: Handle) {
        let closed = self.state().files.remove(&handle);
        if let Some(ino) = closed {
            fs.locks().closed(ino, handle);
        }
    }

    /// Releases all that the kernel held, after its connection has ended.
    pub(crate) fn release_all(&self, fs: &Arc<Filesystem>, runtime: &Runtime) {
        let HeldByKernel { references, files, directories } = std::mem::take(&mut *self.state());
        fs.locks().end_session(self.session);
        directories.into_iter().for_each(|handle| fs.releasedir(handle));
        for handle in files.into_keys() {
            let fs = Arc::clone(fs);
            drop(runtime.spawn(async move {
                if let Err(error) = fs.release(handle).await {
                    tracing::warn!("releasing a file that was open when its mount ended failed: {error}");
                }
            }));
        }
        references.into_iter().for_each(|(ino, count)| fs.forget(ino, count));
    }

    fn state(&self) -> MutexGuard<'_, HeldByKernel> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
