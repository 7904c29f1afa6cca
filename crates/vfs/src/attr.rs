//! Attributes as a front end passes them to programs.

use meta::{AttrChanges, Ino, Inode, Kind};
use store::Timestamp;

/// Result of `stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are POSIX's")]
pub struct Attr {
    pub ino: Ino,
    pub kind: Kind,
    /// The 12 permission bits.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub rdev: u32,
    pub size_bytes: u64,
    /// Allocated size in units of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
}

impl From<&Inode> for Attr {
    fn from(inode: &Inode) -> Self {
        Self {
            ino: inode.ino,
            kind: inode.kind,
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            nlink: inode.nlink,
            rdev: inode.rdev,
            size_bytes: inode.size_bytes,
            blocks: blocks(stored_bytes(inode)),
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
        }
    }
}

impl Attr {
    /// Returns the type and permission bits, as in `st_mode` of stat(2).
    pub fn st_mode(&self) -> u32 {
        type_bits(self.kind) | u32::from(self.mode)
    }

    /// Replaces `blocks` by the blocks that `data_bytes` take; holes take none.
    pub(crate) fn with_data_bytes(self, data_bytes: u64) -> Self {
        Self { blocks: blocks(data_bytes.min(self.size_bytes)), ..self }
    }
}

/// Returns how many bytes of a file are in objects, so not in holes. Returns the length of any other inode.
fn stored_bytes(inode: &Inode) -> u64 {
    match inode.kind {
        Kind::File => inode.content.data_bytes(),
        _ => inode.size_bytes,
    }
}

/// Returns the number of 512-byte blocks that a number of bytes takes.
fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(512)
}

/// Credentials of the calling process; they own what it creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Permission bits that the process removes from files it creates.
    pub umask: u16,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// The moment of the call (`UTIME_NOW`).
    Now,
    /// The given time.
    At(Timestamp),
}

/// Attributes to change; `None` leaves an attribute as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names are POSIX's")]
pub struct Changes {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size_bytes: Option<u64>,
    pub atime: Option<Time>,
    pub mtime: Option<Time>,
}

impl Changes {
    /// Returns the changes without that of the size, which the data path makes; `None` if there is no other. `now` is
    /// the time for [`Time::Now`].
    pub(crate) fn attributes(&self, now: Timestamp) -> Option<AttrChanges> {
        let at = |time: Option<Time>| {
            time.map(|time| match time {
                Time::Now => now,
                Time::At(at) => at,
            })
        };
        let changes = AttrChanges {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            size_bytes: None,
            atime: at(self.atime),
            mtime: at(self.mtime),
        };
        (changes != AttrChanges::default()).then_some(changes)
    }
}

/// Returns the bits of `st_mode` for a kind of file.
pub(crate) fn type_bits(kind: Kind) -> u32 {
    match kind {
        Kind::File => libc::S_IFREG,
        Kind::Directory => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
        Kind::CharDevice => libc::S_IFCHR,
        Kind::BlockDevice => libc::S_IFBLK,
    }
}
