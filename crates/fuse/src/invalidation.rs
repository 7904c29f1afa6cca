//! Telling the kernel what to drop, from a thread of its own: the kernel may wait for a lock that a request
//! holds, so no thread that answers requests may do it.

use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use tokio::sync::watch;
use vfs::{Filesystem, Invalidation, News};

/// Passes on what the file system says until `ended` becomes true or it has no more to say.
pub(crate) fn start(
    fs: &Arc<Filesystem>,
    mut from: News,
    to: Notifier,
    mut ended: watch::Receiver<bool>,
    runtime: Handle,
) -> io::Result<JoinHandle<()>> {
    let fs = Arc::downgrade(fs);
    std::thread::Builder::new().name("fuse-invalidate".to_owned()).spawn(move || {
        loop {
            let next = runtime.block_on(async {
                tokio::select! {
                    next = from.recv() => next,
                    _ = ended.wait_for(|ended| *ended) => None,
                }
            });
            match next {
                Some(Invalidation::Everything) => tell_everything(&to, &fs),
                Some(invalidation) => tell(&to, &invalidation),
                None => return,
            }
        }
    })
}

/// Drops all that the kernel may hold.
fn tell_everything(kernel: &Notifier, fs: &Weak<Filesystem>) {
    let mut after = None;
    while let Some((last, held)) = fs.upgrade().and_then(|fs| fs.everything_held(after)) {
        held.iter().for_each(|invalidation| tell(kernel, invalidation));
        after = Some(last);
    }
}

fn tell(kernel: &Notifier, invalidation: &Invalidation) {
    let told = match invalidation {
        Invalidation::Inode(ino) => kernel.inval_inode(INodeNo(ino.0), 0, 0),
        // A negative offset leaves the pages alone.
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
        // Told one by one, see `tell_everything`.
        Invalidation::Everything => return,
    };
    // What the kernel does not know it need not drop.
    if let Err(error) = told {
        tracing::trace!("the kernel did not drop {invalidation:?}: {error}");
    }
}
