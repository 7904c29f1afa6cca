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

/// Forwards the file system's invalidations to the kernel until `ended` becomes true or the file system is dropped.
pub(crate) fn start(
    fs: &Arc<Filesystem>,
    mut news: InvalidationQueue,
    kernel: Notifier,
    mut ended: watch::Receiver<bool>,
    runtime: Handle,
) -> io::Result<JoinHandle<()>> {
    let fs = Arc::downgrade(fs);
    std::thread::Builder::new().name("fuse-invalidate".to_owned()).spawn(move || {
        loop {
            let next = runtime.block_on(async {
                tokio::select! {
                    next = news.recv() => next,
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
/// of the batch before and returns the last inode of its batch.
fn invalidate_all(
    kernel: &Notifier,
    fs: &Weak<Filesystem>,
    held: impl Fn(&Filesystem, Option<Ino>) -> Option<(Ino, Vec<Invalidation>)>,
) {
    let mut after = None;
    while let Some((last, some)) = fs.upgrade().and_then(|fs| held(&fs, after)) {
        some.iter().for_each(|invalidation| invalidate(kernel, fs, invalidation));
        after = Some(last);
    }
}

fn invalidate(kernel: &Notifier, fs: &Weak<Filesystem>, invalidation: &Invalidation) {
    let result = match invalidation {
        // The kernel's pages belong to the version that is open. A handle opened now bypasses the page cache.
        Invalidation::Inode(ino)
            if fs.upgrade().is_some_and(|fs| fs.kernel_caches().has_older_readers(*ino)) =>
        {
            kernel.inval_inode(INodeNo(ino.0), -1, 0)
        }
        Invalidation::Inode(ino) => kernel.inval_inode(INodeNo(ino.0), 0, 0),
        // A negative offset keeps the cached pages.
        Invalidation::Attributes(ino) => kernel.inval_inode(INodeNo(ino.0), -1, 0),
        Invalidation::Bytes(ino, range) => {
            let len = range.end.saturating_sub(range.start);
            kernel.inval_inode(INodeNo(ino.0), range.start.cast_signed(), len.cast_signed())
        }
        Invalidation::Entry { parent, name } => {
            kernel.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name))
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
