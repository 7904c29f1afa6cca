//! Telling the kernel what to drop, from a thread of its own: the kernel may wait for a lock that a request
//! holds, so no thread that answers requests may do it.

use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use tokio::sync::{mpsc::Receiver, watch};
use vfs::Invalidation;

/// Passes on what the file system says until `ended` becomes true or it has no more to say.
pub(crate) fn start(
    mut from: Receiver<Invalidation>,
    to: Notifier,
    mut ended: watch::Receiver<bool>,
    runtime: Handle,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("fuse-invalidate".to_owned()).spawn(move || {
        loop {
            let next = runtime.block_on(async {
                tokio::select! {
                    next = from.recv() => next,
                    _ = ended.wait_for(|ended| *ended) => None,
                }
            });
            match next {
                Some(invalidation) => tell(&to, &invalidation),
                None => return,
            }
        }
    })
}

fn tell(kernel: &Notifier, invalidation: &Invalidation) {
    let told = match invalidation {
        Invalidation::Inode(ino) => kernel.inval_inode(INodeNo(ino.0), 0, 0),
        // A negative offset leaves the pages alone.
        Invalidation::Attributes(ino) => kernel.inval_inode(INodeNo(ino.0), -1, 0),
        Invalidation::Entry { parent, name } => {
            kernel.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name))
        }
        Invalidation::Reached(mark) => {
            mark.reached();
            return;
        }
    };
    // What the kernel does not know it need not drop.
    if let Err(error) = told {
        tracing::trace!("the kernel did not drop {invalidation:?}: {error}");
    }
}
