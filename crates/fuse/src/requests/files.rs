//! Open files and their bytes.

use crate::adapter::Adapter;
use crate::convert::{self, permissions};
use crate::operations::Operation;
use crate::reply::{Answer, OpenFile};
use crate::shared_mount::Sharing;
use bytes::Bytes;
use fuser::{
    Errno, FileHandle, FopenFlags, INodeNo, LockOwner, OpenFlags, ReplyCreate, ReplyData, ReplyEmpty,
    ReplyLseek, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use vfs::{Caller, Error, Filesystem, Handle, Ino, Opened, Whence};

/// More are forgotten: their next open may be told to look again once more.
const LOOKING_AGAIN_MAX: usize = 1024;

/// Threads, and inodes whose open by them was answered with a demand to look the name up again: it is made once.
#[derive(Debug, Default)]
pub(crate) struct LookingAgain(Mutex<HashSet<(u32, Ino)>>);

impl LookingAgain {
    fn must_look(&self, thread: u32, ino: Ino, was_replaced: bool) -> bool {
        let mut demands = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if demands.remove(&(thread, ino)) || !was_replaced {
            return false;
        }
        if demands.len() >= LOOKING_AGAIN_MAX {
            demands.clear();
        }
        demands.insert((thread, ino))
    }
}

impl Adapter {
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
        let found = self.found(parent, &name);
        let sharing = self.sharing.clone();
        self.answer(Operation::Create, reply, async move {
            let made = fs.create(caller, convert::ino(parent), &name, permissions(mode), flags).await;
            let (attr, opened) = match made {
                // Without `O_EXCL` the program gets what is there.
                Err(error) if error.errno() == libc::EEXIST && flags & libc::O_EXCL == 0 => {
                    return Err(Error::LookAgain(
                        "another client made the file since its name was looked up",
                    ));
                }
                made => made?,
            };
            // Its close stores the file, so the kernel must say when that is.
            let file = open_file(sharing.as_deref(), attr.ino, opened, flags | libc::O_RDWR);
            Ok((found(attr), file))
        });
    }

    /// A truncation comes as a request of its own.
    ///
    /// Where other bytes were found than the kernel knows, it is told to look the name up again, once: else it would append, and
    /// end a read, where it takes the end to be. One that keeps nothing need not be told.
    pub(crate) fn open_file(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (fs, ino, looking_again) = (Arc::clone(&self.fs), convert::ino(ino), self.looking_again.clone());
        let (sharing, thread) = (self.sharing.clone(), request.pid());
        self.answer(Operation::Open, reply, async move {
            let opened = match fs.open(ino, flags.0).await {
                // By `O_CREAT`, which the kernel keeps to itself, the program gets what has the name now, or a new file.
                Err(error) if error.errno() == libc::ENOENT => {
                    return Err(Error::LookAgain("the file was removed since its name was looked up"));
                }
                opened => opened?,
            };
            if sharing.is_none() && looking_again.must_look(thread, ino, opened.was_replaced) {
                fs.release(opened.handle).await?;
                return Err(Error::LookAgain("other bytes were found than the kernel knows"));
            }
            Ok(open_file(sharing.as_deref(), ino, opened, flags.0))
        });
    }

    /// The kernel leaves it to the file system to drop set-id bits here, and does not say so in the request.
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

    /// The kernel asks only for data and holes; other seeks are its own.
    pub(crate) fn seek(&self, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let fs = Arc::clone(&self.fs);
        let whence = match whence {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        self.answer(Operation::Lseek, reply, async move { fs.seek(Handle(handle.0), offset, whence).await });
    }

    pub(crate) fn read_bytes(&self, handle: FileHandle, offset: u64, size: u32, reply: ReplyData) {
        let fs = Arc::clone(&self.fs);
        self.answer(
            Operation::Read,
            reply,
            async move { fs.read(Handle(handle.0), offset, size as usize).await },
        );
    }

    /// A write that has to wait keeps a copy of its bytes: the next request overwrites the reader thread's buffer. Of one that
    /// appends the offset is what the kernel takes for the end.
    pub(crate) fn write_bytes(
        &self,
        (ino, handle): (INodeNo, FileHandle),
        offset: u64,
        data: &[u8],
        (flags, open_flags): (WriteFlags, OpenFlags),
        reply: ReplyWrite,
    ) {
        let (ino, handle, written) = (convert::ino(ino), Handle(handle.0), data.len() as u32);
        // What was written through a mapping comes by whichever descriptor there is.
        let has_flag = |flag: i32| open_flags.0 & flag != 0 && !flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let appends = has_flag(libc::O_APPEND);
        // After an asynchronous direct write the kernel does not drop the pages of the range.
        let passes_cache = has_flag(libc::O_DIRECT) && self.keeps();
        let is_set_id = match flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            true => self.fs.drop_set_id(ino),
            false => Ok(false),
        };
        let is_set_id = match is_set_id {
            Ok(is_set_id) => is_set_id,
            Err(error) => return reply.answer(Err(error)),
        };
        let done = match appends {
            _ if passes_cache || is_set_id => None,
            true => self.fs.append_now(handle, offset, data),
            false => self.fs.write_now(handle, offset, data),
        };
        if let Some(outcome) = done {
            self.count(Operation::Write);
            return reply.answer(outcome.map(|()| written));
        }
        let (fs, data) = (Arc::clone(&self.fs), Bytes::copy_from_slice(data));
        self.answer(Operation::Write, reply, async move {
            let outcome = match appends {
                true => fs.append(handle, offset, &data).await,
                false => fs.write(handle, offset, &data).await,
            };
            if is_set_id {
                fs.forget_attributes_above(ino).await;
            }
            outcome?;
            if passes_cache {
                fs.forget_bytes_above(ino, offset..offset + u64::from(written)).await;
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
        let (fs, ino, is_root) = (Arc::clone(&self.fs), convert::ino(ino), request.uid() == 0);
        let (from, to) = ((Handle(from.0.0), from.1), (Handle(to.0.0), to.1));
        self.answer(Operation::CopyFileRange, reply, async move {
            // No more than the answer can say.
            let copied = fs.copy_range(from, to, len.min(u32::MAX.into())).await?;
            drop_set_id(&fs, ino, is_root).await?;
            Ok(copied as u32)
        });
    }

    /// Comes with each `close`, which ends the locks of whoever closes.
    pub(crate) fn flush_file(&self, ino: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let (fs, sharing) = (Arc::clone(&self.fs), self.sharing.clone());
        self.answer(Operation::Flush, reply, async move {
            let flushed = fs.flush(Handle(handle.0)).await;
            if let Some(sharing) = sharing {
                sharing.flushed(&fs, Handle(handle.0), ino, owner);
            }
            flushed
        });
    }

    pub(crate) fn release_file(&self, handle: FileHandle, reply: ReplyEmpty) {
        let fs = Arc::clone(&self.fs);
        if let Some(sharing) = &self.sharing {
            sharing.released(&fs, Handle(handle.0));
        }
        self.answer(Operation::Release, reply, async move { fs.release(Handle(handle.0)).await });
    }

    pub(crate) fn sync_file(&self, handle: FileHandle, reply: ReplyEmpty) {
        let fs = Arc::clone(&self.fs);
        self.answer(Operation::Fsync, reply, async move { fs.fsync(Handle(handle.0)).await });
    }
}

/// Drops the set-id bits of a file that somebody else than root has changed, also in what the kernel believes.
async fn drop_set_id(fs: &Filesystem, ino: Ino, is_root: bool) -> Result<(), Error> {
    if !is_root && fs.drop_set_id(ino)? {
        fs.forget_attributes_above(ino).await;
    }
    Ok(())
}

/// A descriptor that cannot write has nothing to flush, which saves a request per close; but locks may end with it.
fn open_file(sharing: Option<&Sharing>, ino: Ino, opened: Opened, flags: i32) -> OpenFile {
    if let Some(sharing) = sharing {
        sharing.opened(opened.handle, ino);
    }
    let (is_alone, is_read) = (sharing.is_none(), flags & libc::O_ACCMODE == libc::O_RDONLY);
    let is_cached = is_alone && !opened.is_uncached;
    let mut kernel = FopenFlags::empty();
    kernel.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache && is_alone);
    kernel.set(FopenFlags::FOPEN_DIRECT_IO, !is_cached);
    kernel.set(FopenFlags::FOPEN_NOFLUSH, is_read && is_alone);
    OpenFile { handle: FileHandle(opened.handle.0), flags: kernel }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two programs opened a file that another client had just replaced, and one of them got ESTALE: the kernel asks a second
    /// time, not a third, and the first program's second open was taken for the other's.
    #[test]
    fn who_was_told_to_look_again_is_not_told_twice() {
        let looking_again = LookingAgain::default();
        assert!(looking_again.must_look(1, Ino(7), true));
        assert!(looking_again.must_look(2, Ino(7), true));
        assert!(!looking_again.must_look(1, Ino(7), true));
        assert!(!looking_again.must_look(2, Ino(7), true));
        assert!(looking_again.must_look(1, Ino(7), true), "another open");
        assert!(!looking_again.must_look(3, Ino(7), false));
    }
}
