//! Advisory locks of files: in this process, or for all sessions of a shared engine.
//!
//! On a shared engine a lock also orders data: unpublished writes are published before their lock is released, and a program that takes a lock
//! sees everything that was committed before.

use meta::{Ino, Seqno};
use std::time::Duration;

use crate::content::write::When;
use crate::followers::other_sessions::is_ahead_of_front_ends;
use crate::names::handles::Handle;
use crate::names::locks::{Lock, LockKind, LockOwner};
use crate::{Error, Filesystem, Result};

/// Maximum wait of a non-blocking request for a lock whose open file may be closed already. The kernel announces a close in the
/// background, and the program that closed the file must not find it still locked.
const TRY_LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// The locks of programs on a file system's files.
#[derive(Debug, Clone, Copy)]
pub struct FileLocks<'f> {
    fs: &'f Filesystem,
}

impl Filesystem {
    /// Returns the locks that programs hold, for front ends that cannot see each other's.
    pub fn locks(&self) -> FileLocks<'_> {
        FileLocks { fs: self }
    }
}

impl FileLocks<'_> {
    /// Returns a held lock that conflicts with this one; `None` if there is none.
    pub async fn conflict(&self, ino: Ino, wanted: &Lock) -> Result<Option<Lock>> {
        match &self.fs.names.locks().shared {
            Some(locks) => locks.against(ino, wanted).await,
            None => Ok(self.fs.names.locks().here.against(ino, wanted)),
        }
    }

    /// Takes a lock without waiting for its holders, except for those whose open file may be closed already.
    ///
    /// # Errors
    /// EAGAIN if another owner holds a conflicting lock, ENOLCK if there are too many locks, EIO if the lease of a lock of this open file has
    /// expired.
    pub async fn try_take(&self, ino: Ino, wanted: Lock) -> Result<()> {
        if let Some(locks) = &self.fs.names.locks().shared {
            self.publish_before_sharing(&wanted).await?;
            return self.see_all_before(ino, locks.try_take(ino, wanted).await?).await;
        }
        let locks = &self.fs.names.locks().here;
        match locks.try_take(ino, wanted) {
            Err(error) if error.errno() == libc::EAGAIN && locks.may_be_free_soon(ino, &wanted) => {
                let taken = locks.take(ino, wanted, tokio::time::sleep(TRY_LOCK_TIMEOUT)).await;
                taken.map_err(|later| if later.errno() == libc::ENOLCK { later } else { error })
            }
            taken => taken,
        }
    }

    /// Waits until a lock is free and takes it, or until `given_up` completes.
    ///
    /// # Errors
    /// EINTR if the wait was given up, EDEADLK if a holder waits for this owner, directly or through others of this machine, and those of
    /// [`FileLocks::try_take`].
    pub async fn take(&self, ino: Ino, wanted: Lock, given_up: impl Future<Output = ()>) -> Result<()> {
        match &self.fs.names.locks().shared {
            Some(locks) => {
                self.publish_before_sharing(&wanted).await?;
                self.see_all_before(ino, locks.take(ino, wanted, given_up).await?).await
            }
            None => self.fs.names.locks().here.take(ino, wanted, given_up).await,
        }
    }

    /// Releases an owner's locks in a range. Fails if writes of the open file cannot be published before; the locks are released nevertheless.
    pub async fn release(&self, ino: Ino, owner: LockOwner, handle: Handle, range: (u64, u64)) -> Result<()> {
        let Some(locks) = &self.fs.names.locks().shared else {
            self.fs.names.locks().here.release(ino, owner, range.0, range.1);
            return Ok(());
        };
        let published = self.publish_through(handle).await;
        let released = locks.release(ino, owner, range.0, range.1).await;
        locks.check(handle).and(published).and(released)
    }

    /// Releases all locks of an owner on a file of which it has closed a descriptor. It may have been the last one of its open file.
    pub async fn release_owner(&self, ino: Ino, owner: LockOwner, handle: Handle) -> Result<()> {
        if let Some(locks) = &self.fs.names.locks().shared {
            return locks.release_owner(ino, owner, handle).await;
        }
        self.fs.names.locks().here.release_all(ino, owner);
        self.fs.names.locks().here.may_end(ino, handle);
        Ok(())
    }

    /// Releases all locks that were taken through an open file, which is now closed.
    pub async fn closed(&self, ino: Ino, handle: Handle) -> Result<()> {
        match &self.fs.names.locks().shared {
            Some(locks) => locks.closed(ino, handle).await,
            None => {
                self.fs.names.locks().here.closed(ino, handle);
                Ok(())
            }
        }
    }

    /// Releases all locks of a front end that has ended. Its waiters get EINTR.
    pub async fn end_front_end(&self, front_end: u64) -> Result<()> {
        self.fs.names.locks().here.end_session(front_end);
        match &self.fs.names.locks().shared {
            Some(locks) => locks.end_front_end(front_end).await,
            None => Ok(()),
        }
    }

    /// Fails with EIO if the lease of a lock that was taken through this open file has expired.
    pub(crate) fn check_handle(&self, handle: Handle) -> Result<()> {
        self.fs.names.locks().shared.as_ref().map_or(Ok(()), |locks| locks.check(handle))
    }

    /// Returns once open files show all that others have changed, if this is a strict session of a shared engine.
    pub(crate) fn check_current(&self) -> Result<()> {
        match &self.fs.names.locks().shared {
            Some(_) => self.fs.names.tables().engine().check_current().map_err(engine_error),
            None => Ok(()),
        }
    }

    /// Publishes writes before a shared lock, which may replace an exclusive one.
    async fn publish_before_sharing(&self, wanted: &Lock) -> Result<()> {
        match wanted.kind {
            LockKind::Shared => self.publish_through(wanted.handle).await,
            LockKind::Exclusive => Ok(()),
        }
    }

    /// Publishes the unpublished writes of an open file.
    async fn publish_through(&self, handle: Handle) -> Result<()> {
        match self.fs.names.handles().file(handle) {
            Ok(handle) if handle.is_writable && handle.file.pending().is_dirty => {
                self.fs.io.publisher.commit(&handle.file, When::Open).await
            }
            _ => Ok(()),
        }
    }

    /// Returns once this mount and its front ends show what was committed up to `head`, and the file has its newest content.
    async fn see_all_before(&self, ino: Ino, head: Seqno) -> Result<()> {
        let engine = self.fs.names.tables().engine();
        engine.wait_acknowledged(head).map_err(engine_error)?;
        if is_ahead_of_front_ends(&self.fs.names) {
            self.fs.names.delivered().await;
        }
        self.fs.content.read_newest_if_outdated(ino)
    }
}

fn engine_error(error: meta::EngineError) -> Error {
    meta::FsError::from(error).into()
}
