//! Requests for open files and their contents.

use crate::convert::{self, permissions};
use crate::operations::Operation;
use crate::reply::{Answer, OpenFile};
use crate::request_handler::RequestHandler;
use crate::shared_mount::SharedMount;
use crate::traced_operation::ReplySummary;
use bytes::Bytes;
use fuser::{
    Errno, FileHandle, FopenFlags, INodeNo, LockOwner, OpenFlags, ReplyCreate, ReplyData, ReplyEmpty,
    ReplyLseek, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::sync::Arc;
use vfs::{Caller, Error, Filesystem, Handle, Ino, Opened, Whence};

impl RequestHandler {
    pub(crate) fn create_file(
        &self,
        caller: Caller,
        parent: INodeNo,
        name: &[u8],
        mode: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (fs, name) = (Arc::clone(&self.fs), Bytes::copy_from_slice(name));
        let with_ttl = self.with_entry_ttl(parent, &name);
        let (shared, needs_flush) = (self.shared.clone(), true);
        let changeable = self.check_name_changeable(parent, &name);
        self.answer(Operation::Create, reply, async move {
            changeable?;
            let made = fs.create(caller, convert::ino(parent), &name, permissions(mode), flags).await;
            let (attr, opened) = match made {
                // Without `O_EXCL`, open(2) returns the existing file: ESTALE makes the kernel look it up again and open it.
                Err(error) if error.errno() == libc::EEXIST && flags & libc::O_EXCL == 0 => {
                    return Err(Error::StaleEntry(
                        "another client made the file after its name was looked up",
                    ));
                }
                made => made?,
            };
            // Closing the file stores it, so the kernel must send FLUSH even if the descriptor is read-only.
            let file = open_file(shared.as_deref(), attr.ino, opened, needs_flush);
            Ok((with_ttl(attr), file))
        });
    }

    /// Opens a file. Truncation arrives as a request of its own.
    ///
    /// If the file's content is not the one that the kernel knows, ESTALE makes the kernel look the name up again, once. With the old
    /// length it would append at the wrong offset and end reads at the wrong place. A shared mount caches nothing, so it needs no retry.
    pub(crate) fn open_file(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if let Some(tree) = self.virtual_at(ino.0) {
            let ino = convert::ino(ino);
            return self.answer(Operation::Open, reply, async move { tree.open(ino, flags.0).await });
        }
        let (fs, ino, stale_opens) = (Arc::clone(&self.fs), convert::ino(ino), self.stale_opens.clone());
        let (shared, thread) = (self.shared.clone(), request.pid());
        // A close may end locks.
        let needs_flush = self.lock_session.is_some() || flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        self.answer(Operation::Open, reply, async move {
            let opened = match fs.open(ino, flags.0).await {
                // With `O_CREAT`, which the kernel does not pass on, the retry opens the file that has the name now, or creates it.
                Err(error) if error.errno() == libc::ENOENT => {
                    return Err(Error::StaleEntry("the file was removed after its name was looked up"));
                }
                opened => opened?,
            };
            if shared.is_none() && stale_opens.demand_retry(thread, ino, opened.was_replaced) {
                fs.release(opened.handle).await?;
                return Err(Error::StaleEntry("the object was replaced after the kernel last looked at it"));
            }
            Ok(open_file(shared.as_deref(), ino, opened, needs_flush))
        });
    }

    /// Changes a range of a file as fallocate(2) does. The kernel leaves dropping set-id bits to the file system, without saying so in
    /// the request.
    pub(crate) fn allocate(
        &self,
        request: &Request,
        (ino, handle): (INodeNo, FileHandle),
        mode: i32,
        range: (u64, u64),
        reply: ReplyEmpty,
    ) {
        let (fs, ino, is_root) = (Arc::clone(&self.fs), convert::ino(ino), request.uid() == 0);
        self.answer(Operation::Fallocate, reply, async move {
            fs.fallocate(Handle(handle.0), mode, range.0, range.1).await?;
            drop_set_id(&fs, ino, is_root).await
        });
    }

    /// Finds data or a hole. The kernel handles all other seeks itself.
    pub(crate) fn seek(&self, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        if self.virtual_at(handle.0).is_some() {
            // The length is 0, so there are neither data nor holes.
            return reply.error(self.start(Operation::Lseek).refuse_with(Errno::ENXIO));
        }
        let fs = Arc::clone(&self.fs);
        let whence = match whence {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return reply.error(self.start(Operation::Lseek).refuse_with(Errno::EINVAL)),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(self.start(Operation::Lseek).refuse_with(Errno::ENXIO));
        };
        self.answer(Operation::Lseek, reply, async move { fs.seek(Handle(handle.0), offset, whence).await });
    }

    pub(crate) fn read_bytes(&self, handle: FileHandle, offset: u64, size: u32, reply: ReplyData) {
        if let Some(tree) = self.virtual_at(handle.0) {
            let work = async move { tree.read(handle.0, offset, size as usize).await };
            return self.answer(Operation::Read, reply, work);
        }
        let (fs, meter) = (Arc::clone(&self.fs), Arc::clone(self.meter()));
        self.answer(Operation::Read, reply, async move {
            let bytes = fs.read(Handle(handle.0), offset, size as usize).await?;
            meter.add_read(bytes.len());
            Ok(bytes)
        });
    }

    /// Writes bytes. A write that must wait copies its bytes, because the next request overwrites the reader thread's
    /// buffer. The offset of an appending write is the end of the file as the kernel knows it, so `vfs` determines the
    /// real one.
    pub(crate) fn write_bytes(
        &self,
        (ino, handle): (INodeNo, FileHandle),
        offset: u64,
        data: &[u8],
        (flags, open_flags): (WriteFlags, OpenFlags),
        reply: ReplyWrite,
    ) {
        let (ino, handle, written) = (convert::ino(ino), Handle(handle.0), data.len() as u32);
        // Writing back a memory mapping may use any descriptor of the file, so the flags of that descriptor do not apply.
        let has_flag = |flag: i32| open_flags.0 & flag != 0 && !flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let appends = has_flag(libc::O_APPEND);
        // After an asynchronous direct write the kernel does not drop the cached pages of the range by itself, so it is
        // told to.
        let passes_cache = has_flag(libc::O_DIRECT) && self.may_cache();
        let is_set_id = match flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            true => self.fs.drop_set_id(ino),
            false => Ok(false),
        };
        let is_set_id = match is_set_id {
            Ok(is_set_id) => is_set_id,
            Err(error) => return reply.error(self.start(Operation::Write).refuse(&error)),
        };
        let done = match appends {
            _ if passes_cache || is_set_id => None,
            true => self.fs.append_now(handle, offset, data),
            false => self.fs.write_now(handle, offset, data),
        };
        if let Some(outcome) = done {
            let mut request = self.start(Operation::Write);
            match &outcome {
                Ok(()) => {
                    self.meter().add_written(written);
                    request.note_reply(|| ReplySummary { ino: 0, bytes: u64::from(written) });
                }
                Err(error) => request.fail(error.errno()),
            }
            return reply.answer(outcome.map(|()| written));
        }
        let (fs, data) = (Arc::clone(&self.fs), Bytes::copy_from_slice(data));
        let meter = Arc::clone(self.meter());
        self.answer(Operation::Write, reply, async move {
            let outcome = match appends {
                true => fs.append(handle, offset, &data).await,
                false => fs.write(handle, offset, &data).await,
            };
            if is_set_id {
                fs.kernel_caches().forget_attributes(ino).await;
            }
            outcome?;
            meter.add_written(written);
            if passes_cache {
                fs.kernel_caches().forget_bytes(ino, offset..offset + u64::from(written)).await;
            }
            Ok(written)
        });
    }

    pub(crate) fn copy_bytes(
        &self,
        request: &Request,
        from: (FileHandle, u64),
        (ino, to): (INodeNo, (FileHandle, u64)),
        len: u64,
        reply: ReplyWrite,
    ) {
        if self.virtual_at(from.0.0).is_some() {
            // The kernel then copies by reads and writes.
            return reply.error(self.start(Operation::CopyFileRange).refuse_with(Errno::EOPNOTSUPP));
        }
        let (fs, ino, is_root) = (Arc::clone(&self.fs), convert::ino(ino), request.uid() == 0);
        let (from, to) = ((Handle(from.0.0), from.1), (Handle(to.0.0), to.1));
        self.answer(Operation::CopyFileRange, reply, async move {
            // The reply holds at most 32 bits.
            let copied = fs.copy_range(from, to, len.min(u32::MAX.into())).await?;
            drop_set_id(&fs, ino, is_root).await?;
            Ok(copied as u32)
        });
    }

    /// Handles a `close` of any descriptor. This ends the locks that the closing process has on the file, if the file system keeps them.
    pub(crate) fn flush_file(&self, ino: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        if self.virtual_at(handle.0).is_some() {
            return self.answer(Operation::Flush, reply, async { Ok(()) });
        }
        let (fs, owner) = (Arc::clone(&self.fs), self.lock_owner(owner));
        self.answer(Operation::Flush, reply, async move {
            let flushed = fs.flush(Handle(handle.0)).await;
            match owner {
                Some(owner) => {
                    flushed.and(fs.locks().release_owner(convert::ino(ino), owner, Handle(handle.0)).await)
                }
                None => flushed,
            }
        });
    }

    pub(crate) fn release_file(&self, ino: INodeNo, handle: FileHandle, reply: ReplyEmpty) {
        if let Some(tree) = self.virtual_at(handle.0) {
            tree.close(handle.0);
            return self.answer(Operation::Release, reply, async { Ok(()) });
        }
        let (fs, handle, keeps_locks) = (Arc::clone(&self.fs), Handle(handle.0), self.lock_session.is_some());
        if let Some(shared) = &self.shared {
            shared.remove_file(handle);
        }
        self.answer(Operation::Release, reply, async move {
            let unlocked = match keeps_locks {
                true => fs.locks().closed(convert::ino(ino), handle).await,
                false => Ok(()),
            };
            fs.release(handle).await.and(unlocked)
        });
    }

    pub(crate) fn sync_file(&self, handle: FileHandle, reply: ReplyEmpty) {
        let (fs, is_virtual) = (Arc::clone(&self.fs), self.virtual_at(handle.0).is_some());
        self.answer(Operation::Fsync, reply, async move {
            if is_virtual { Ok(()) } else { fs.fsync(Handle(handle.0)).await }
        });
    }
}

/// Drops the set-id bits of a file that a user other than root has changed, also from the kernel's cached attributes.
async fn drop_set_id(fs: &Filesystem, ino: Ino, is_root: bool) -> Result<(), Error> {
    if !is_root && fs.drop_set_id(ino)? {
        fs.kernel_caches().forget_attributes(ino).await;
    }
    Ok(())
}

/// Makes the reply to an open. A descriptor whose close does nothing needs no FLUSH, which saves a request per close.
fn open_file(shared: Option<&SharedMount>, ino: Ino, opened: Opened, needs_flush: bool) -> OpenFile {
    if let Some(shared) = shared {
        shared.add_file(opened.handle, ino);
    }
    let is_only_mount = shared.is_none();
    let is_cached = is_only_mount && !opened.is_uncached;
    let mut reply_flags = FopenFlags::empty();
    reply_flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache && is_only_mount);
    reply_flags.set(FopenFlags::FOPEN_DIRECT_IO, !is_cached);
    reply_flags.set(FopenFlags::FOPEN_NOFLUSH, !needs_flush);
    OpenFile { handle: FileHandle(opened.handle.0), flags: reply_flags }
}
