//! Entry point of all requests of the kernel: decodes each one and passes it to its family in [`crate::requests`], or
//! refuses it as unsupported.

use crate::convert;
use crate::locks::Locks;
use crate::operations::Operation;
use crate::request_handler::RequestHandler;
use crate::requests::LockRequest;
use crate::shared_mount;
use crate::traced_operation::SubjectRef;
use fuser::{
    AccessFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem as Requests, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

/// Maximum size of a write that the kernel sends and, by way of `max_pages`, of a read. Going beyond the kernel's default
/// `max_pages_limit` (1 MiB) would need root to raise that limit.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Maximum number of background requests, above all read-ahead. The kernel's default of 12 does not keep a store busy.
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// Capabilities requested from the kernel where it has them. Four are left out on purpose. `AUTO_INVAL_DATA`:
/// `keep_cache` and notifications say exactly what is stale. `WRITEBACK_CACHE`: `vfs` must see writes in their order.
/// `ATOMIC_O_TRUNC`: a file would be truncated before the kernel finds that a program runs from it. `SETXATTR_EXT`:
/// `fuser` does not know the longer request (see [`crate::requester`]). `POSIX_LOCKS` and `FLOCK_LOCKS` are requested
/// only for a shared mount or to refuse locks; otherwise the kernel keeps locks itself. `HANDLE_KILLPRIV_V2` saves a
/// GETXATTR per WRITE. With `POSIX_ACL` the kernel checks the access lists that it reads as extended attributes. With
/// `DONT_MASK` it leaves the umask to the file system, which knows the directory's default access list.
const CAPABILITIES: [InitFlags; 9] = [
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

/// Capabilities with which the kernel sends every lock request to this process, instead of keeping the locks of this
/// mount itself.
const LOCK_CAPABILITIES: [InitFlags; 2] = [InitFlags::FUSE_POSIX_LOCKS, InitFlags::FUSE_FLOCK_LOCKS];

/// The request handler of a mount as `fuser` calls it.
#[derive(Debug)]
pub(crate) struct Adapter(RequestHandler);

impl Adapter {
    pub(crate) fn new(handler: RequestHandler) -> Self {
        Self(handler)
    }
}

/// Implements the trait of `fuser`. Each method only decodes a request and passes it to its family.
impl Requests for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wants_lock_requests = self.0.locks == Locks::Refused || self.0.lock_session.is_some();
        let more = if wants_lock_requests { &LOCK_CAPABILITIES[..] } else { &[] };
        let less = if self.0.shared.is_some() { &shared_mount::UNWANTED_CAPABILITIES[..] } else { &[] };
        for &capability in CAPABILITIES.iter().chain(more).filter(|wanted| !less.contains(wanted)) {
            if config.add_capabilities(capability).is_err() {
                tracing::debug!("the kernel's FUSE does not support {capability:?}");
            }
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_REQUESTS_MAX);
        Ok(())
    }

    fn destroy(&mut self) {
        self.0.enter(|| self.0.release_references());
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = self.0.node(parent);
        self.0.dispatch(request, SubjectRef::name(parent, name.as_bytes()), || {
            self.0.look_up(parent, name.as_bytes(), reply)
        });
    }

    fn forget(&self, request: &Request, ino: INodeNo, count: u64) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || {
            let _request = self.0.start(Operation::Forget);
            if let Some(tree) = self.0.virtual_at(ino.0) {
                return tree.forget(convert::ino(ino), count);
            }
            if let Some(shared) = &self.0.shared {
                shared.drop_references(convert::ino(ino), count);
            }
            self.0.fs.forget(convert::ino(ino), count);
        });
    }

    fn getattr(&self, request: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.get_attributes(ino, handle, reply));
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
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino).new_length(size_bytes), || {
            let changes = vfs::Changes {
                mode: mode.map(convert::permissions),
                uid,
                gid,
                size_bytes,
                atime: atime.map(convert::time),
                mtime: mtime.map(convert::time),
            };
            self.0.set_attributes(request, ino, changes, handle, reply);
        });
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.read_link(ino, reply));
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
        let parent = self.0.node(parent);
        self.0.dispatch(request, SubjectRef::name(parent, name.as_bytes()), || {
            self.0.make_node(convert::caller(request, umask), parent, name.as_bytes(), mode, rdev, reply)
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
        let parent = self.0.node(parent);
        self.0.dispatch(request, SubjectRef::name(parent, name.as_bytes()), || {
            self.0.make_directory(convert::caller(request, umask), parent, name.as_bytes(), mode, reply)
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = self.0.node(parent);
        self.0.dispatch(request, SubjectRef::name(parent, name.as_bytes()), || {
            self.0.remove_name(parent, name.as_bytes(), reply)
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = self.0.node(parent);
        self.0.dispatch(request, SubjectRef::name(parent, name.as_bytes()), || {
            self.0.remove_directory(parent, name.as_bytes(), reply)
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let parent = self.0.node(parent);
        self.0.dispatch(request, SubjectRef::name(parent, name.as_bytes()), || {
            let caller = convert::caller(request, 0);
            self.0.make_symlink(caller, parent, name.as_bytes(), target.as_os_str().as_bytes(), reply);
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (parent, new_parent) = (self.0.node(parent), self.0.node(new_parent));
        self.0.dispatch(
            request,
            SubjectRef::name(parent, name.as_bytes()).to(new_parent, new_name.as_bytes()),
            || self.0.move_name((parent, name.as_bytes()), (new_parent, new_name.as_bytes()), flags, reply),
        );
    }

    fn link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (ino, parent) = (self.0.node(ino), self.0.node(parent));
        self.0.dispatch(request, SubjectRef::inode(ino).to(parent, name.as_bytes()), || {
            self.0.add_name(ino, parent, name.as_bytes(), reply)
        });
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
        let parent = self.0.node(parent);
        self.0.dispatch(request, SubjectRef::name(parent, name.as_bytes()), || {
            self.0.create_file(convert::caller(request, umask), parent, name.as_bytes(), mode, flags, reply)
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.open_file(request, ino, flags, reply));
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino).at(offset).bytes(u64::from(size)), || {
            self.0.read_bytes(handle, offset, size, reply)
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open_flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino).at(offset).bytes(data.len() as u64), || {
            self.0.write_bytes((ino, handle), offset, data, (flags, open_flags), reply)
        });
    }

    fn flush(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.flush_file(ino, handle, owner, reply));
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.release_file(ino, handle, reply));
    }

    fn fsync(&self, request: &Request, ino: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.sync_file(handle, reply));
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.open_directory(ino, reply));
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        cookie: u64,
        reply: ReplyDirectory,
    ) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino).at(cookie), || {
            self.0.list_directory(handle, cookie, reply)
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        cookie: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino).at(cookie), || {
            self.0.list_with_attributes(ino, handle, cookie, reply)
        });
    }

    fn releasedir(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.release_directory(handle, reply));
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.sync_directory(reply));
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.describe_file_system(ino, reply));
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || {
            self.0.get_xattr(ino, name.as_bytes(), size, reply)
        });
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.list_xattrs(ino, size, reply));
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
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || {
            self.0.set_xattr(request, ino, name.as_bytes(), value, flags, reply)
        });
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.remove_xattr(ino, name.as_bytes(), reply));
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
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino).at(offset).bytes(len), || {
            self.0.allocate(request, (ino, handle), mode, (offset, len), reply)
        });
    }

    fn lseek(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || self.0.seek(handle, offset, whence, reply));
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
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino).at(to_offset).bytes(len), || {
            self.0.copy_bytes(request, (from, from_offset), (ino, (to, to_offset)), len, reply)
        });
    }

    fn getlk(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || {
            self.0.test_lock(ino, &LockRequest { owner, handle, first, last, kind, pid }, reply);
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
        let ino = self.0.node(ino);
        self.0.dispatch(request, SubjectRef::inode(ino), || {
            self.0.set_lock(
                request,
                ino,
                &LockRequest { owner, handle, first, last, kind, pid },
                waits,
                reply,
            );
        });
    }

    // These requests are unsupported. After one ENOSYS the kernel stops sending the request and copes without it. An
    // ioctl gets ENOTTY, as for any file without ioctls.

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(self.0.start(Operation::Other).refuse_with(Errno::ENOSYS));
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.error(self.0.start(Operation::Other).refuse_with(Errno::ENOSYS));
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
        reply.error(self.0.start(Operation::Other).refuse_with(Errno::ENOSYS));
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
        reply.error(self.0.start(Operation::Other).refuse_with(Errno::ENOTTY));
    }
}
