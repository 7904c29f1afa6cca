//! Tells the kernel what to drop from its caches. This runs on a thread of its own: the kernel may wait for a lock that a request
//! holds, so a thread that answers requests must not do it.

use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use tokio::sync::watch;
use vfs::{Filesystem, Ino, Invalidation, InvalidationQueue};

/// The kernel's caches of a mount.
struct Kernel {
    notifier: Notifier,
    /// The directory that is the root of the mount, for which the kernel has a number of its own.
    root: Ino,
}

impl Kernel {
    /// Returns the number by which the kernel knows an inode.
    fn node(&self, ino: Ino) -> INodeNo {
        if ino == self.root { INodeNo(Ino::ROOT.0) } else { INodeNo(ino.0) }
    }
}

/// Starts the thread that forwards the file system's invalidations to the kernel until `ended` becomes true or the file
/// system is dropped. `root` is the directory that is the root of the mount.
pub(crate) fn start(
    fs: &Arc<Filesystem>,
    mut invalidations: InvalidationQueue,
    (notifier, root): (Notifier, Ino),
    mut ended: watch::Receiver<bool>,
    runtime: Handle,
) -> io::Result<JoinHandle<()>> {
    let (fs, kernel) = (Arc::downgrade(fs), Kernel { notifier, root });
    std::thread::Builder::new().name("fuse-invalidate".to_owned()).spawn(move || {
        loop {
            let next = runtime.block_on(async {
                tokio::select! {
                    next = invalidations.recv() => next,
                    _ = ended.wait_for(|ended| *ended) => None,
                }
            });
            match next {
                Some(Invalidation::Everything) => {
                    invalidate_all(&kernel, &fs, |fs, after| fs.kernel_caches().everything_held(after));
                }
                Some(Invalidation::Directory(dir)) => {
                    invalidate_all(&kernel, &fs, |fs, after| fs.kernel_caches().held_in(dir, after));
                }
                Some(invalidation) => invalidate(&kernel, &fs, &invalidation),
                None => return,
            }
        }
    })
}

/// Invalidates what `held` returns for the inodes that the kernel references, in batches: `held` gets the last inode
/// of the previous batch and returns the last inode of its own with what to invalidate; `None` ends.
fn invalidate_all(
    kernel: &Kernel,
    fs: &Weak<Filesystem>,
    held: impl Fn(&Filesystem, Option<Ino>) -> Option<(Ino, Vec<Invalidation>)>,
) {
    let mut after = None;
    while let Some((last, batch)) = fs.upgrade().and_then(|fs| held(&fs, after)) {
        batch.iter().for_each(|invalidation| invalidate(kernel, fs, invalidation));
        after = Some(last);
    }
}

/// Sends one invalidation to the kernel.
fn invalidate(kernel: &Kernel, fs: &Weak<Filesystem>, invalidation: &Invalidation) {
    let result = match invalidation {
        // Handles of an older version are open, to which the kernel's pages belong: drop only the attributes. A handle
        // that is opened now bypasses the page cache.
        Invalidation::Inode(ino)
            if fs.upgrade().is_some_and(|fs| fs.kernel_caches().has_older_readers(*ino)) =>
        {
            kernel.notifier.inval_inode(kernel.node(*ino), -1, 0)
        }
        Invalidation::Inode(ino) => kernel.notifier.inval_inode(kernel.node(*ino), 0, 0),
        // The offset -1 keeps the cached pages.
        Invalidation::Attributes(ino) => kernel.notifier.inval_inode(kernel.node(*ino), -1, 0),
        Invalidation::Bytes(ino, range) => {
            let len = range.end.saturating_sub(range.start);
            kernel.notifier.inval_inode(kernel.node(*ino), range.start.cast_signed(), len.cast_signed())
        }
        Invalidation::Entry { parent, name } => {
            kernel.notifier.inval_entry(kernel.node(*parent), OsStr::from_bytes(name))
        }
        Invalidation::Reached(mark) => {
            mark.reached();
            return;
        }
        // Handled by `invalidate_all`.
        Invalidation::Everything | Invalidation::Directory(_) => return,
    };
    // The kernel reports an error for what it has not cached, which needs no invalidation.
    if let Err(error) = result {
        tracing::trace!(
            "the kernel refused {invalidation:?}, as it does for what it has not cached: {error}"
        );
    }
}
