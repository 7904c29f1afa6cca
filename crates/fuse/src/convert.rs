//! Converts between the types of `vfs` and those of `fuser`.

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use vfs::{Attr, Caller, Ino, Kind, Time, Timestamp};

/// The preferred size of a request, as `stat` reports it: the largest request that the kernel sends.
pub(crate) const BLOCK_SIZE_BYTES: u32 = 1 << 20;

pub(crate) fn attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size_bytes,
        blocks: attr.blocks,
        atime: attr.atime.to_system_time(),
        mtime: attr.mtime.to_system_time(),
        ctime: attr.ctime.to_system_time(),
        crtime: attr.btime.to_system_time(),
        kind: kind(attr.kind),
        perm: attr.mode & 0o7777,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_SIZE_BYTES,
        flags: 0,
    }
}

pub(crate) fn kind(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// Returns the kind encoded in the upper bits of a mode; no bits mean a regular file (mknod(2)). `None` for bits of no
/// known kind.
pub(crate) fn kind_of_mode(mode: u32) -> Option<Kind> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Some(Kind::File),
        libc::S_IFDIR => Some(Kind::Directory),
        libc::S_IFLNK => Some(Kind::Symlink),
        libc::S_IFIFO => Some(Kind::Fifo),
        libc::S_IFSOCK => Some(Kind::Socket),
        libc::S_IFCHR => Some(Kind::CharDevice),
        libc::S_IFBLK => Some(Kind::BlockDevice),
        _ => None,
    }
}

/// Returns the twelve permission bits of a mode.
pub(crate) fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

pub(crate) fn time(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::Now => Time::Now,
        TimeOrNow::SpecificTime(time) => Time::At(Timestamp::from_system_time(time)),
    }
}

pub(crate) fn ino(ino: INodeNo) -> Ino {
    Ino(ino.0)
}

pub(crate) fn caller(request: &fuser::Request, umask: u32) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), umask: permissions(umask) }
}

pub(crate) fn errno(error: &vfs::Error) -> Errno {
    Errno::from_i32(error.errno())
}
