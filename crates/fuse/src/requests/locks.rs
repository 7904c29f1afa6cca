//! Requests for locks. The kernel keeps locks itself while this is the file system's only mount. If this process has
//! further mounts of it, the file system keeps them. With [`Locks::Refused`], which callers choose if other machines
//! mount the volume, locks are refused.
//!
//! The transport does not say whether a lock is one of fcntl(2) or of flock(2), so both exclude each other, as on NFS.

use crate::locks::Locks;
use crate::operations::Operation;
use crate::reply::log_errno;
use crate::request_handler::RequestHandler;
use crate::{convert, signals};
use fuser::{Errno, FileHandle, INodeNo, LockOwner, ReplyEmpty, ReplyLock, Request};
use std::sync::Arc;
use std::time::Duration;
use vfs::{Error, Filesystem, Handle, Ino, Lock, LockKind};

/// Maximum wait of a non-blocking request for a lock whose open file may be closed already. The kernel announces a close in the
/// background, and the program that closed the file must not find it still locked.
const TRY_LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// The lock in a request: `struct file_lock` of `linux/fuse.h`.
pub(crate) struct LockRequest {
    pub(crate) owner: LockOwner,
    pub(crate) handle: FileHandle,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) kind: i32,
    pub(crate) pid: u32,
}

impl RequestHandler {
    pub(crate) fn test_lock(&self, ino: INodeNo, lock: &LockRequest, reply: ReplyLock) {
        self.count(Operation::GetLk);
        if self.locks == Locks::Refused {
            return reply.error(Errno::ENOLCK);
        }
        let Some(wanted) = self.parse_lock(lock) else { return reply.error(Errno::EINVAL) };
        match self.fs.locks().against(convert::ino(ino), &wanted) {
            Some(Lock { first, last, kind, pid, .. }) => {
                let kind = if kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
                reply.locked(first, last, kind, pid);
            }
            None => reply.locked(lock.first, lock.last, libc::F_UNLCK, 0),
        }
    }

    pub(crate) fn set_lock(
        &self,
        request: &Request,
        ino: INodeNo,
        lock: &LockRequest,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let operation = if waits { Operation::SetLkW } else { Operation::SetLk };
        let (ino, fs, thread) = (convert::ino(ino), Arc::clone(&self.fs), request.pid());
        if self.locks == Locks::Refused {
            return self.refuse(Errno::ENOLCK, reply);
        }
        let Some(shared) = &self.shared else { return self.refuse(Errno::ENOSYS, reply) };
        if lock.kind == libc::F_UNLCK {
            fs.locks().release(ino, shared.owner(lock.owner), lock.first, lock.last);
            self.count(operation);
            return reply.ok();
        }
        let Some(wanted) = self.parse_lock(lock) else { return self.refuse(Errno::EINVAL, reply) };
        self.count(operation);
        self.run(async move {
            let taken = match waits {
                true => fs.locks().take(ino, wanted, signals::wait_for_signal(thread)).await,
                false => try_lock(&fs, ino, wanted).await,
            };
            match taken {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(log_errno(&error)),
            }
        });
    }

    fn parse_lock(&self, lock: &LockRequest) -> Option<Lock> {
        let kind = match lock.kind {
            libc::F_RDLCK => LockKind::Shared,
            libc::F_WRLCK => LockKind::Exclusive,
            _ => return None,
        };
        let owner = self.shared.as_ref()?.owner(lock.owner);
        let &LockRequest { first, last, pid, handle, .. } = lock;
        (first <= last).then_some(Lock { owner, handle: Handle(handle.0), first, last, kind, pid })
    }

    fn refuse(&self, errno: Errno, reply: ReplyEmpty) {
        self.count(Operation::Other);
        reply.error(errno);
    }
}

async fn try_lock(fs: &Filesystem, ino: Ino, wanted: Lock) -> Result<(), Error> {
    match fs.locks().try_take(ino, wanted) {
        Err(error) if error.errno() == libc::EAGAIN && fs.locks().may_be_free_soon(ino, &wanted) => {
            let taken = fs.locks().take(ino, wanted, tokio::time::sleep(TRY_LOCK_TIMEOUT)).await;
            taken.map_err(|later| if later.errno() == libc::ENOLCK { later } else { error })
        }
        taken => taken,
    }
}
