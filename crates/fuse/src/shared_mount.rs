//! One mount of several of one file system: what its kernel holds, and what it may believe.
//!
//! The kernels of several mounts do not know of each other's changes, so none keeps anything: names and attributes are
//! asked for each time, bytes are read and written past the page cache, and locks are the file system's. One that does
//! not say goodbye, as its connection is cut, must not hold on to anything while others go on: what it was given is
//! noted here, and given back at its end.

use crate::convert;
use fuser::{INodeNo, InitFlags, LockOwner};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle as Runtime;
use vfs::{Filesystem, Handle, Ino};

/// What is not asked for: entries of a listing that must be looked up again are better not made.
pub(crate) const UNWANTED: [InitFlags; 2] =
    [InitFlags::FUSE_DO_READDIRPLUS, InitFlags::FUSE_READDIRPLUS_AUTO];

/// Sessions of this process.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// One mount of several.
#[derive(Debug)]
pub(crate) struct Sharing {
    session: u64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    references: HashMap<Ino, u64>,
    files: HashMap<Handle, Ino>,
    directories: HashSet<Handle>,
}

impl Sharing {
    pub(crate) fn new() -> Self {
        Self { session: SESSIONS.fetch_add(1, Ordering::Relaxed), held: Mutex::default() }
    }

    /// An owner of locks by the kernel's number for it.
    pub(crate) fn owner(&self, owner: LockOwner) -> vfs::LockOwner {
        vfs::LockOwner { session: self.session, id: owner.0 }
    }

    /// The kernel was given a reference.
    pub(crate) fn refers(&self, ino: Ino) {
        *self.held().references.entry(ino).or_default() += 1;
    }

    /// It gave some back.
    pub(crate) fn forgets(&self, ino: Ino, count: u64) {
        let mut held = self.held();
        let Some(left) = held.references.get_mut(&ino) else { return };
        *left = left.saturating_sub(count);
        if *left == 0 {
            held.references.remove(&ino);
        }
    }

    pub(crate) fn opened(&self, handle: Handle, ino: Ino) {
        self.held().files.insert(handle, ino);
    }

    pub(crate) fn opened_directory(&self, handle: Handle) {
        self.held().directories.insert(handle);
    }

    pub(crate) fn closed_directory(&self, handle: Handle) {
        self.held().directories.remove(&handle);
    }

    /// A process closed a descriptor: its locks of the file end, through whichever descriptor it asked for them.
    pub(crate) fn flushed(&self, fs: &Filesystem, handle: Handle, ino: INodeNo, owner: LockOwner) {
        let ino = convert::ino(ino);
        fs.locks().release_all(ino, self.owner(owner));
        fs.locks().may_end(ino, handle);
    }

    /// The last descriptor of an open file is closed: what was locked for the open file itself ends.
    pub(crate) fn released(&self, fs: &Filesystem, handle: Handle) {
        let closed = self.held().files.remove(&handle);
        if let Some(ino) = closed {
            fs.locks().closed(ino, handle);
        }
    }

    /// The kernel is gone: nothing comes back from it any more.
    pub(crate) fn ended(&self, fs: &Arc<Filesystem>, runtime: &Runtime) {
        let Held { references, files, directories } = std::mem::take(&mut *self.held());
        fs.locks().end_session(self.session);
        directories.into_iter().for_each(|handle| fs.releasedir(handle));
        for handle in files.into_keys() {
            let fs = Arc::clone(fs);
            drop(runtime.spawn(async move {
                if let Err(error) = fs.release(handle).await {
                    tracing::warn!("a file that was open when its mount ended: {error}");
                }
            }));
        }
        references.into_iter().for_each(|(ino, count)| fs.forget(ino, count));
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
