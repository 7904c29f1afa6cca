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
    /// Replaces `blocks` by the blocks that `data_bytes` take; holes take none.
    pub(crate) fn with_data_bytes(self, data_bytes: u64) -> Self {
        Self { blocks: blocks(data_bytes.min(self.size_bytes)), ..self }
    }
}

/// Returns how many bytes of an inode are in objects; holes are not.
fn stored_bytes(inode: &Inode) -> u64 {
    match inode.kind {
        Kind::File => inode.content.data_bytes(),
        _ => inode.size_bytes,
    }
}

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
    /// Returns the changes of attributes alone; the size is changed by the data path.
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
