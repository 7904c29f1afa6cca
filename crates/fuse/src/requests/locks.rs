//! Locks, which the kernel keeps by itself unless the file system is mounted elsewhere too: by this process, where the
//! file system keeps them, or by other machines, where nobody can.
//!
//! The transport does not say whether a lock is one of fcntl(2) or of flock(2), so both are of one kind, as they are on NFS.

use crate::adapter::Adapter;
use crate::operations::Operation;
use crate::reply::failed;
use crate::session::Locks;
use crate::{convert, signals};
use fuser::{Errno, FileHandle, INodeNo, LockOwner, ReplyEmpty, ReplyLock, Request};
use std::sync::Arc;
use std::time::Duration;
use vfs::{Error, Filesystem, Handle, Ino, Lock, LockKind};

/// How long a try waits for a lock whose open file may be closed already: the kernel says so in the background, and who
/// closed it must not find it locked.
const TRY_FOR: Duration = Duration::from_millis(500);

/// What a request says of a lock: `struct file_lock` of `linux/fuse.h`.
pub(crate) struct Asked {
    pub(crate) owner: LockOwner,
    pub(crate) handle: FileHandle,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) kind: i32,
    pub(crate) pid: u32,
}

impl Adapter {
    pub(crate) fn test_lock(&self, ino: INodeNo, asked: &Asked, reply: ReplyLock) {
        self.count(Operation::GetLk);
        if self.locks == Locks::Refused {
            return reply.error(Errno::ENOLCK);
        }
        let Some(wanted) = self.lock(asked) else { return reply.error(Errno::EINVAL) };
        match self.fs.locks().against(convert::ino(ino), &wanted) {
            Some(Lock { first, last, kind, pid, .. }) => {
                let kind = if kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
                reply.locked(first, last, kind, pid);
            }
            None => reply.locked(asked.first, asked.last, libc::F_UNLCK, 0),
        }
    }

    pub(crate) fn set_lock(
        &self,
        request: &Request,
        ino: INodeNo,
        asked: &Asked,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let operation = if waits { Operation::SetLkW } else { Operation::SetLk };
        let (ino, fs, thread) = (convert::ino(ino), Arc::clone(&self.fs), request.pid());
        if self.locks == Locks::Refused {
            return self.refuse(Errno::ENOLCK, reply);
        }
        let Some(sharing) = &self.sharing else { return self.refuse(Errno::ENOSYS, reply) };
        if asked.kind == libc::F_UNLCK {
            fs.locks().release(ino, sharing.owner(asked.owner), asked.first, asked.last);
            self.count(operation);
            return reply.ok();
        }
        let Some(wanted) = self.lock(asked) else { return self.refuse(Errno::EINVAL, reply) };
        self.count(operation);
        self.carry_out(async move {
            let taken = match waits {
                true => fs.locks().take(ino, wanted, signals::arrive_at(thread)).await,
                false => try_lock(&fs, ino, wanted).await,
            };
            match taken {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(failed(&error)),
            }
        });
    }

    fn lock(&self, asked: &Asked) -> Option<Lock> {
        let kind = match asked.kind {
            libc::F_RDLCK => LockKind::Shared,
            libc::F_WRLCK => LockKind::Exclusive,
            _ => return None,
        };
        let owner = self.sharing.as_ref()?.owner(asked.owner);
        let &Asked { first, last, pid, handle, .. } = asked;
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
            let taken = fs.locks().take(ino, wanted, tokio::time::sleep(TRY_FOR)).await;
            taken.map_err(|later| if later.errno() == libc::ENOLCK { later } else { error })
        }
        taken => taken,
    }
}
