//! Where requests come in: counted, handed to their family in [`crate::requests`], and carried out.

use crate::convert;
use crate::operations::{Operation, RequestCounts};
use crate::reply::{Answer, Believed};
use crate::requests::{Asked, LookingAgain};
use crate::session::Locks;
use crate::shared_mount::{self, Sharing};
use bytes::Bytes;
use fuser::{
    AccessFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem as Requests, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use futures_util::FutureExt as _;
use std::ffi::OsStr;
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use vfs::{Attr, Error, Filesystem};

/// The largest write the kernel sends, and with `max_pages` the largest read; more than `max_pages_limit`
/// (1 MiB) needs root to raise it.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests the kernel may have under way on its own account, readahead above all. Its default of 12 is less
/// than what a store needs to be kept busy.
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// What is asked of the kernel where it can do it. Not asked: `AUTO_INVAL_DATA` (`keep_cache` and
/// notifications say exactly what is stale), `WRITEBACK_CACHE` (`vfs` must see writes in their order),
/// `POSIX_LOCKS` and `FLOCK_LOCKS` where the mount is alone (the kernel keeps them itself), `ATOMIC_O_TRUNC` (a file would be
/// cut before the kernel finds that a program runs from it), `SETXATTR_EXT` (the transport does not know its longer request, see [`crate::requester`]).
/// `HANDLE_KILLPRIV_V2` saves a GETXATTR per WRITE; with `POSIX_ACL` the kernel checks the lists that it reads as extended
/// attributes, and with `DONT_MASK` it leaves the umask to whoever knows the directory's default list.
const WANTED: [InitFlags; 9] = [
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_DONT_MASK,
];

/// With these the kernel asks for every lock, instead of keeping it for this mount alone.
const LOCKS: [InitFlags; 2] = [InitFlags::FUSE_POSIX_LOCKS, InitFlags::FUSE_FLOCK_LOCKS];

/// One mounted file system.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) fs: Arc<Filesystem>,
    pub(crate) looking_again: Arc<LookingAgain>,
    pub(crate) locks: Locks,
    /// None where this is the file system's only mount.
    pub(crate) sharing: Option<Arc<Sharing>>,
    counts: Arc<RequestCounts>,
    runtime: Handle,
}

impl Adapter {
    pub(crate) fn new(
        fs: Arc<Filesystem>,
        locks: Locks,
        sharing: Option<Arc<Sharing>>,
        counts: Arc<RequestCounts>,
        runtime: Handle,
    ) -> Self {
        Self { fs, looking_again: Arc::default(), locks, sharing, counts, runtime }
    }

    /// Counts the request and answers it with what `work` gives.
    pub(crate) fn answer<T, R: Answer<T>>(
        &self,
        operation: Operation,
        reply: R,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) where
        T: 'static,
    {
        self.counts.count(operation);
        self.carry_out(async move { reply.answer(work.await) });
    }

    /// Runs `work` on this thread if it need not wait, and otherwise on the runtime. Its store calls share one retry
    /// budget. A panic there drops the reply too, which answers EIO.
    pub(crate) fn carry_out(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = Box::pin(AssertUnwindSafe(vfs::share_budget(work)).catch_unwind().map(log_panic));
        if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            drop(self.runtime.spawn(work));
        }
    }

    /// Runs a request's handler on a thread of the transport, which knows no runtime: inside it the handler may spawn
    /// tasks. A panic costs this request only: its reply is dropped, which answers EIO, and the thread goes on.
    fn handle(&self, handler: impl FnOnce()) {
        let _entered = self.runtime.enter();
        log_panic(catch_unwind(AssertUnwindSafe(handler)));
    }

    /// Attributes with the time for which the kernel may believe them.
    pub(crate) fn believed(&self) -> impl Fn(Attr) -> Believed + Send + 'static {
        let (fs, keeps) = (Arc::clone(&self.fs), self.keeps());
        move |attr: Attr| {
            let is_kept = keeps && !fs.misleads_readers(&attr);
            let ttl = if is_kept { fs.lifetime_of(attr.ino) } else { Duration::ZERO };
            Believed { attr, ttl }
        }
    }

    /// The same of an inode to which the kernel has one more reference, by a name in a directory.
    pub(crate) fn found(&self, parent: INodeNo, name: &Bytes) -> impl Fn(Attr) -> Believed + Send + 'static {
        let (fs, sharing, name) = (Arc::clone(&self.fs), self.sharing.clone(), name.clone());
        let (parent, asked) = (convert::ino(parent), fs.asked());
        move |attr| {
            let ttl = match &sharing {
                Some(sharing) => {
                    sharing.refers(attr.ino);
                    Duration::ZERO
                }
                None if fs.misleads_readers(&attr) => Duration::ZERO,
                None => fs.lifetime(parent, &name, asked),
            };
            Believed { attr, ttl }
        }
    }

    /// Whether the kernel may keep anything.
    pub(crate) fn keeps(&self) -> bool {
        self.sharing.is_none()
    }

    pub(crate) fn count(&self, operation: Operation) {
        self.counts.count(operation);
    }
}

/// Logs the panic of a request.
fn log_panic(outcome: std::thread::Result<()>) {
    if let Err(panic) = outcome {
        let message = panic.downcast_ref::<&str>().copied();
        let message =
            message.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        tracing::error!(message, "a request panicked; it was answered with an I/O error");
    }
}

/// The transport's trait, and nothing but the way to each family of requests.
impl Requests for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let has_locks = self.locks == Locks::Refused || self.sharing.is_some();
        let more = if has_locks { &LOCKS[..] } else { &[] };
        let less = if self.sharing.is_some() { &shared_mount::UNWANTED[..] } else { &[] };
        for &capability in WANTED.iter().chain(more).filter(|wanted| !less.contains(wanted)) {
            if config.add_capabilities(capability).is_err() {
                tracing::debug!("this kernel's FUSE lacks {capability:?}");
            }
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_REQUESTS_MAX);
        Ok(())
    }

    fn destroy(&mut self) {
        self.handle(|| {
            if let Some(sharing) = &self.sharing {
                sharing.ended(&self.fs, &self.runtime);
            }
        });
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.handle(|| self.find(parent, name.as_bytes(), reply));
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        self.handle(|| {
            self.count(Operation::Forget);
            if let Some(sharing) = &self.sharing {
                sharing.forgets(convert::ino(ino), count);
            }
            self.fs.forget(convert::ino(ino), count);
        });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        self.handle(|| self.attributes(ino, handle, reply));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size_bytes: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.handle(|| {
            let changes = vfs::Changes {
                mode: mode.map(convert::permissions),
                uid,
                gid,
                size_bytes,
                atime: atime.map(convert::time),
                mtime: mtime.map(convert::time),
            };
            self.change_attributes(request, ino, changes, handle, reply);
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.handle(|| self.link_target(ino, reply));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.handle(|| {
            self.make_node(convert::caller(request, umask), parent, name.as_bytes(), mode, rdev, reply)
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.handle(|| {
            self.make_directory(convert::caller(request, umask), parent, name.as_bytes(), mode, reply)
        });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.handle(|| self.remove_name(parent, name.as_bytes(), reply));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.handle(|| self.remove_directory(parent, name.as_bytes(), reply));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.handle(|| {
            let caller = convert::caller(request, 0);
            self.make_symlink(caller, parent, name.as_bytes(), target.as_os_str().as_bytes(), reply);
        });
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.handle(|| {
            self.move_name((parent, name.as_bytes()), (new_parent, new_name.as_bytes()), flags, reply)
        });
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.handle(|| self.add_name(ino, parent, name.as_bytes(), reply));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.handle(|| {
            self.create_file(convert::caller(request, umask), parent, name.as_bytes(), mode, flags, reply)
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.handle(|| self.open_file(request, ino, flags, reply));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.handle(|| self.read_bytes(handle, offset, size, reply));
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open_flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.handle(|| self.write_bytes((ino, handle), offset, data, (flags, open_flags), reply));
    }

    fn flush(&self, _: &Request, ino: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        self.handle(|| self.flush_file(ino, handle, owner, reply));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.handle(|| self.release_file(handle, reply));
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.handle(|| self.sync_file(handle, reply));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.handle(|| self.open_directory(ino, reply));
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, cookie: u64, reply: ReplyDirectory) {
        self.handle(|| self.list(handle, cookie, reply));
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        cookie: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.handle(|| self.list_with_attributes(ino, handle, cookie, reply));
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.handle(|| self.release_directory(handle, reply));
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.handle(|| self.sync_directory(reply));
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.handle(|| self.describe(ino, reply));
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.handle(|| self.get_xattr(ino, name.as_bytes(), size, reply));
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.handle(|| self.list_xattrs(ino, size, reply));
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        self.handle(|| self.set_xattr(request, ino, name.as_bytes(), value, flags, reply));
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.handle(|| self.remove_xattr(ino, name.as_bytes(), reply));
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.handle(|| self.allocate(request, (ino, handle), mode, (offset, len), reply));
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.handle(|| self.seek(handle, offset, whence, reply));
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        ino: INodeNo,
        to: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.handle(|| self.copy_bytes(request, (from, from_offset), (ino, (to, to_offset)), len, reply));
    }

    fn getlk(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        self.handle(|| {
            self.test_lock(ino, &Asked { owner, handle, first, last, kind, pid }, reply);
        });
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        kind: i32,
        pid: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        self.handle(|| {
            self.set_lock(request, ino, &Asked { owner, handle, first, last, kind, pid }, waits, reply);
        });
    }

    // Answered once per mount with ENOSYS, after which the kernel does without, or does it itself.

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        self.count(Operation::Other);
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        self.count(Operation::Other);
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        self.count(Operation::Other);
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        self.count(Operation::Other);
        reply.error(Errno::ENOTTY);
    }
}
