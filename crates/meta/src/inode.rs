//! Inodes and dentries.

use crate::{Content, Ino, Kind, Moment, Name, Stored};
use bytes::Bytes;
use store::Timestamp;

/// The set-group-id bit of a mode: entries created in such a directory get the directory's group.
pub const SETGID: u16 = 0o2000;

/// A file, directory, symbolic link or special file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Inode number.
    pub ino: Ino,
    /// Type.
    pub kind: Kind,
    /// The 12 permission bits.
    pub mode: u16,
    /// User id of the owner.
    pub uid: u32,
    /// Id of the owning group.
    pub gid: u32,
    /// Number of names; for a directory 2 plus the number of its subdirectories; 0 for an orphan.
    pub nlink: u32,
    /// Device number of a character or block device, 0 otherwise.
    pub rdev: u32,
    /// Length in bytes; 0 for a directory.
    pub size_bytes: u64,
    /// Time of the last read.
    pub atime: Timestamp,
    /// Time of the last change of the content. Adding or removing an entry never sets a directory's mtime back.
    pub mtime: Timestamp,
    /// Time of the last change of the inode.
    pub ctime: Timestamp,
    /// Time of creation.
    pub btime: Timestamp,
    /// The primary name, as directory and name, from which path naming derives the object key. At first it is the name with which
    /// the inode was created. `None` for the root and for orphans.
    pub home: Option<(Ino, Name)>,
    /// Where the content is stored.
    pub content: Content,
    /// The target of a symbolic link, once known.
    pub target: Option<Bytes>,
    /// Whether the attributes are authoritative: read from the object's headers or set locally. Attributes derived from a listing
    /// are not.
    pub exact: bool,
    /// The latest observation of the store that this inode takes into account, or the last local change of the content.
    pub observed_at: Moment,
}

impl Inode {
    /// Returns the object at the path key ([`Stored::key`]), or else the object of the first extent; `None` if nothing
    /// is stored.
    pub fn object(&self) -> Option<&Stored> {
        self.content.object()
    }

    /// Returns whether the file has stored content, none of which is in the object at the path key.
    pub fn is_beside(&self) -> bool {
        self.object().is_some_and(|object| object.key.is_some())
    }

    /// Returns whether the content is partly in the object at the path key and partly in others, which were stored later.
    pub fn is_ahead(&self) -> bool {
        self.content.is_partly_at_path()
    }

    /// Returns whether the inode is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Returns whether the inode has no name: only open handles refer to it.
    pub fn is_orphan(&self) -> bool {
        self.nlink == 0
    }
}

/// The inode that a directory entry refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dentry {
    /// Inode number.
    pub ino: Ino,
    /// The inode's type, so that a listing need not read inodes.
    pub kind: Kind,
}
