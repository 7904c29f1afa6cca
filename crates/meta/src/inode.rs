//! Inodes, dentries and extents: what a volume holds.

use crate::{Content, Ino, Moment, Name};
use bytes::Bytes;
use std::ops::Range;
use store::{ETag, ObjectKey, Timestamp, VersionId};

/// The set-group-id bit of a mode: what is created in such a directory gets the directory's group.
pub const SETGID: u16 = 0o2000;

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// A file, directory or other thing that names lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// The 12 permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// How many names lead here; of a directory 2 + its subdirectories; 0 for an orphan.
    pub nlink: u32,
    /// Device number of a character or block device, 0 otherwise.
    pub rdev: u32,
    /// Length in bytes; 0 for a directory.
    pub size_bytes: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of the content. Of a directory it never goes back by an entry coming or going.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// The dentry that owns the object key under path naming (the first name); `None` for the root and for orphans.
    pub home: Option<(Ino, Name)>,
    /// Where the bytes are.
    pub content: Content,
    /// Where a symbolic link leads, once known.
    pub target: Option<Bytes>,
    /// Whether the attributes come from headers or from this side; a listing's word is not exact.
    pub exact: bool,
    /// When the store was last seen to agree, or the content was last changed here.
    pub observed_at: Moment,
}

impl Inode {
    /// Returns the object: the one that lies where naming says, else that of the first extent.
    pub fn object(&self) -> Option<&Stored> {
        self.content.object()
    }

    /// Whether none of the content lies where naming says.
    pub fn is_beside(&self) -> bool {
        self.object().is_some_and(|object| object.key.is_some())
    }

    /// Whether some of the content is not in the object that lies where naming says: it was stored beside since.
    pub fn is_ahead(&self) -> bool {
        self.content.is_partly_at_path()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Whether nothing but open handles leads here any more.
    pub fn is_orphan(&self) -> bool {
        self.nlink == 0
    }
}

/// A range of a file and the range of an object that holds it, both of `len` bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The object.
    pub object: Stored,
    /// Where it begins in the object, in bytes.
    pub object_offset: u64,
}

impl Extent {
    /// Where it ends in the file, saturating.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// The part of it that holds `range` of the file, which must lie inside.
    pub fn part(&self, range: &Range<u64>) -> Self {
        let object_offset = self.object_offset + (range.start - self.offset);
        Self { offset: range.start, len: range.end - range.start, object: self.object.clone(), object_offset }
    }
}

/// Whether extents ascend without overlap and end within `size_bytes`. One of length 0 stands alone: it says which
/// object an empty file has.
pub(crate) fn extents_fit(content: &[Extent], size_bytes: u64) -> bool {
    let mut end = 0;
    content.iter().all(|extent| {
        let ascends = extent.offset >= end && (extent.len > 0 || content.len() == 1);
        end = extent.end();
        ascends && extent.offset.checked_add(extent.len).is_some_and(|end| end <= size_bytes)
    })
}

/// `old` up to `size_bytes`, with `new` in place of `ranges`. Both ascend without overlap.
pub(crate) fn spliced(old: &[Extent], ranges: &[Range<u64>], new: &[Extent], size_bytes: u64) -> Vec<Extent> {
    let mut content = new.to_vec();
    for extent in old {
        let end = extent.end().min(size_bytes);
        let mut at = extent.offset;
        let first = ranges.partition_point(|range| range.end <= at);
        for range in ranges[first..].iter().take_while(|range| range.start < end) {
            if at < range.start {
                content.push(extent.part(&(at..range.start)));
            }
            at = at.max(range.end);
        }
        if at < end {
            content.push(extent.part(&(at..end)));
        }
    }
    content.sort_by_key(|extent| extent.offset);
    content
}

/// Whether ranges ascend without overlap, and extents ascend inside them.
pub(crate) fn ranges_hold(ranges: &[Range<u64>], content: &[Extent]) -> bool {
    let ascend = ranges.is_sorted_by(|one, next| one.end <= next.start);
    let are_ranges = ranges.iter().all(|range| range.start <= range.end);
    let is_inside = |extent: &Extent| {
        let at = ranges.partition_point(|range| range.end <= extent.offset);
        ranges.get(at).is_some_and(|range| range.start <= extent.offset && extent.end() <= range.end)
    };
    ascend && are_ranges && content.iter().all(is_inside)
}

/// A stored object as an inode refers to it: a [`store::ObjectRef`] whose key may follow the inode's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The key; `None`: the one the volume's naming gives to the inode's home.
    pub key: Option<ObjectKey>,
    /// Which bytes.
    pub etag: ETag,
    /// Which version, where the bucket keeps versions.
    pub version: Option<VersionId>,
    /// When they were stored, where known.
    pub last_modified: Option<Timestamp>,
}

/// What a name in a directory leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dentry {
    /// The inode.
    pub ino: Ino,
    /// What it is, so that a listing need not read inodes.
    pub kind: Kind,
}
