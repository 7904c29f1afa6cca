//! Requests for locks. The kernel keeps locks itself while this is the file system's only mount. If this process has
//! further mounts of it, or other machines share its metadata, the file system keeps them. With [`Locks::Refused`], which callers choose if
//! other machines mount the volume without sharing its metadata, locks are refused.
//!
//! `fuser` does not say whether a lock is one of fcntl(2) or of flock(2), so both exclude each other, as on NFS.

use crate::locks::Locks;
use crate::operations::Operation;
use crate::request_handler::RequestHandler;
use crate::{convert, signals};
use fuser::{Errno, FileHandle, INodeNo, LockOwner, ReplyEmpty, ReplyLock, Request};
use std::sync::Arc;
use vfs::{Handle, Lock, LockKind, Locker};

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
    /// Replies with a lock that conflicts with the requested one, or that there is none (F_GETLK).
    pub(crate) fn test_lock(&self, ino: INodeNo, lock: &LockRequest, reply: ReplyLock) {
        let mut request = self.start(Operation::GetLk);
        if self.locks == Locks::Refused {
            return reply.error(request.refuse_with(Errno::ENOLCK));
        }
        let Some(wanted) = self.parse_lock(lock) else {
            return reply.error(request.refuse_with(Errno::EINVAL));
        };
        let (fs, ino, first, last) = (Arc::clone(&self.fs), convert::ino(ino), lock.first, lock.last);
        self.run(request.cause(), async move {
            match fs.locks().conflict(ino, &wanted).await {
                Ok(Some(Lock { first, last, kind, pid, .. })) => {
                    let kind = if kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
                    reply.locked(first, last, kind, pid);
                }
                Ok(None) => reply.locked(first, last, libc::F_UNLCK, 0),
                Err(error) => reply.error(request.refuse(&error)),
            }
        });
    }

    /// Takes or releases a lock; with `waits` waits until it is free (F_SETLKW).
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
        let Some(owner) = self.lock_owner(lock.owner) else { return self.refuse(Errno::ENOSYS, reply) };
        if lock.kind == libc::F_UNLCK {
            let (handle, range) = (Handle(lock.handle.0), (lock.first, lock.last));
            return self.answer(operation, reply, async move {
                fs.locks().release(ino, owner, handle, range).await
            });
        }
        let Some(wanted) = self.parse_lock(lock) else { return self.refuse(Errno::EINVAL, reply) };
        self.answer(operation, reply, async move {
            match waits {
                true => fs.locks().take(ino, wanted, signals::wait_for_signal(thread)).await,
                false => fs.locks().try_take(ino, wanted).await,
            }
        });
    }

    /// Returns the lock that a request means; `None` for an unknown kind, a range that ends before it begins, or a
    /// mount whose kernel keeps the locks.
    fn parse_lock(&self, lock: &LockRequest) -> Option<Lock> {
        let kind = match lock.kind {
            libc::F_RDLCK => LockKind::Shared,
            libc::F_WRLCK => LockKind::Exclusive,
            _ => return None,
        };
        let owner = self.lock_owner(lock.owner)?;
        let &LockRequest { first, last, pid, handle, .. } = lock;
        (first <= last).then_some(Lock { owner, handle: Handle(handle.0), first, last, kind, pid })
    }

    /// Returns the file system's id of a lock owner, made of the number of this front end and the kernel's number of the owner; `None` if the
    /// kernel keeps the locks.
    pub(crate) fn lock_owner(&self, owner: LockOwner) -> Option<vfs::LockOwner> {
        let session = self.lock_session?;
        Some(vfs::LockOwner { locker: Locker::default(), session, id: owner.0 })
    }

    /// Replies with an error, and counts the request as [`Operation::Other`].
    fn refuse(&self, errno: Errno, reply: ReplyEmpty) {
        reply.error(self.start(Operation::Other).refuse_with(errno));
    }
}
