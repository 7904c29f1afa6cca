//! Inodes, dentries, extents and references to stored objects.

use crate::{Content, Ino, Moment, Name};
use bytes::Bytes;
use std::ops::Range;
use store::{ETag, ObjectKey, Timestamp, VersionId};

/// The set-group-id bit of a mode: entries created in such a directory get the directory's group.
pub const SETGID: u16 = 0o2000;

/// The type of an inode.
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

/// A file, directory, symbolic link or special file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Inode number.
    pub ino: Ino,
    /// Type.
    pub kind: Kind,
    /// The 12 permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
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
    /// Returns the object at the path key ([`Stored::key`]), or else the object of the first extent.
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

/// A range of a file and the range of an object that stores it, both `len` bytes long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The object.
    pub object: Stored,
    /// Offset in the object, in bytes.
    pub object_offset: u64,
}

impl Extent {
    /// Returns the end of the extent in the file, saturating.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Returns the part of the extent that stores `range` of the file. The range must lie within the extent.
    pub fn part(&self, range: &Range<u64>) -> Self {
        let object_offset = self.object_offset + (range.start - self.offset);
        Self { offset: range.start, len: range.end - range.start, object: self.object.clone(), object_offset }
    }
}

/// Returns whether extents ascend without overlap and end within `size_bytes`. An extent of length 0 is valid only as the
/// single extent: it records which object an empty file has.
pub(crate) fn extents_fit(content: &[Extent], size_bytes: u64) -> bool {
    let mut end = 0;
    content.iter().all(|extent| {
        let ascends = extent.offset >= end && (extent.len > 0 || content.len() == 1);
        end = extent.end();
        ascends && extent.offset.checked_add(extent.len).is_some_and(|end| end <= size_bytes)
    })
}

/// Returns `old` cut off at `size_bytes`, with `new` in place of `ranges`. All three inputs ascend without overlap.
pub(crate) fn splice_extents(
    old: &[Extent],
    ranges: &[Range<u64>],
    new: &[Extent],
    size_bytes: u64,
) -> Vec<Extent> {
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

/// Returns whether the ranges ascend without overlap and each extent lies within one of them.
pub(crate) fn ranges_contain(ranges: &[Range<u64>], content: &[Extent]) -> bool {
    let ascend = ranges.is_sorted_by(|one, next| one.end <= next.start);
    let are_ranges = ranges.iter().all(|range| range.start <= range.end);
    let is_inside = |extent: &Extent| {
        let at = ranges.partition_point(|range| range.end <= extent.offset);
        ranges.get(at).is_some_and(|range| range.start <= extent.offset && extent.end() <= range.end)
    };
    ascend && are_ranges && content.iter().all(is_inside)
}

/// A reference to a stored object, like [`store::ObjectRef`], whose key may follow from the inode's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The object's key. `None` means the path key: the key that the volume's naming derives from the inode's primary name.
    pub key: Option<ObjectKey>,
    /// The etag, which identifies the object's bytes.
    pub etag: ETag,
    /// The object's version, if the bucket keeps versions.
    pub version: Option<VersionId>,
    /// When the object was stored, if known.
    pub last_modified: Option<Timestamp>,
}

/// The inode that a directory entry refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dentry {
    /// Inode number.
    pub ino: Ino,
    /// The inode's type, so that a listing need not read inodes.
    pub kind: Kind,
}
