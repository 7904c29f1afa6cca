//! Ops: every change of the namespace, as a value.

use crate::{Extent, Ino, Inode, Kind, Limits, Moment, Name, Stored};
use bytes::Bytes;
use std::ops::Range;
use store::{ETag, ObjectKey, Timestamp};

/// Who asks and when; stamped where the request enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ctx {
    /// The wall-clock time of the change, for the times of inodes.
    pub now: Timestamp,
    /// The moment of the change, for ordering it with looks at the store.
    pub at: Moment,
    /// The caller's user.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
}

/// One namespace change. [`apply`](crate::namespace::apply) gives it its meaning; an op that fails changes nothing.
///
/// Every op can fail with [`FsError::NotFound`](crate::FsError::NotFound) for an inode or name that is not there and
/// with [`FsError::NotDirectory`](crate::FsError::NotDirectory) where a parent is none; more errors are named below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Makes the root directory. `Exists` if it is there.
    Root {
        /// Permission bits.
        mode: u16,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Reserves the inode numbers `from..to` for whoever asks. `StaleBase` unless `from` is the first number that
    /// nobody has reserved.
    Lease {
        /// The first number.
        from: Ino,
        /// The number after the last.
        to: Ino,
    },
    /// Makes an inode and its first name. `Exists` if the name is taken. In a set-group-id directory the
    /// directory's group wins over `gid`, and a new directory gets the bit. In a directory with a default ACL the new
    /// inode gets what `mode` and that allow, and elsewhere `mode` without `umask`.
    Create {
        /// The directory.
        parent: Ino,
        /// The new name.
        name: Name,
        /// The new inode's number, from [`Namespace::allocate`](crate::Namespace::allocate).
        ino: Ino,
        /// What to make.
        kind: Kind,
        /// Permission bits.
        mode: u16,
        /// Permissions that the caller's process takes from what it makes; a symbolic link has them all.
        umask: u16,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number, for devices.
        rdev: u32,
        /// Where a symbolic link leads; required for one.
        target: Option<Bytes>,
    },
    /// Makes a file without a name, as [`Op::Create`] would in the same directory: an orphan until it is linked.
    CreateOrphan {
        /// The directory that it inherits from.
        parent: Ino,
        /// The new inode's number.
        ino: Ino,
        /// Permission bits.
        mode: u16,
        /// As in [`Op::Create`].
        umask: u16,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Gives an inode another name, or an orphan its first. `Exists`, `IsDirectory`, `TooManyLinks`.
    Link {
        /// The inode.
        ino: Ino,
        /// The directory of the new name.
        parent: Ino,
        /// The new name.
        name: Name,
    },
    /// Takes a name from anything but a directory. `IsDirectory`.
    Unlink {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Name,
        /// Whether somebody has the inode open: without names it then stays as an orphan until [`Op::Purge`].
        keep: bool,
    },
    /// Makes another of an inode's names its home, as which the object's key follows it; the old home stays one of its
    /// names. No time changes. `NotFound` unless the name leads to the inode.
    HandOn {
        /// The inode.
        ino: Ino,
        /// The directory of the name that becomes the home.
        parent: Ino,
        /// That name.
        name: Name,
    },
    /// Removes an empty directory. `NotEmpty`, `NotDirectory`.
    Rmdir {
        /// The directory that holds it.
        parent: Ino,
        /// Its name.
        name: Name,
    },
    /// Moves a name, by the rules of rename(2). `Exists`, `NotEmpty`, `IsDirectory`, `NotDirectory`, `CrossesItself`.
    Rename {
        /// Old directory and name.
        from: (Ino, Name),
        /// New directory and name.
        to: (Ino, Name),
        /// What to do with an entry that has the new name.
        how: RenameHow,
        /// As in [`Op::Unlink`], for the inode replaced.
        keep: bool,
    },
    /// Changes attributes; ctime becomes now, and an ACL follows the mode. `Invalid` for the size of anything but a file (`IsDirectory` of a directory).
    SetAttr {
        /// The inode.
        ino: Ino,
        /// What to change.
        changes: AttrChanges,
    },
    /// Somebody read it; no other time changes.
    Accessed {
        /// The inode.
        ino: Ino,
        /// When it was last read.
        atime: Timestamp,
    },
    /// Sets an extended attribute. `Exists` or `NoData` according to `how`; `Invalid` for a name or value too long, and
    /// for an [ACL](crate::acl) that is none. The mode follows an ACL, and one that says no more than the mode is not
    /// kept.
    SetXattr {
        /// The inode.
        ino: Ino,
        /// The attribute with its name space (`user.x`).
        name: Box<[u8]>,
        /// Its value.
        value: Bytes,
        /// Whether it may or must exist.
        how: XattrHow,
    },
    /// Removes an extended attribute. `NoData`.
    RemoveXattr {
        /// The inode.
        ino: Ino,
        /// The attribute.
        name: Box<[u8]>,
    },
    /// Names bytes that are stored: the content is now this. `StaleBase` if the current object is not `base`.
    Publish {
        /// The inode.
        ino: Ino,
        /// The etag of the object the bytes replace; `None`: nothing was stored.
        base: Option<ETag>,
        /// The new content. `Invalid` unless ascending, without overlap and within the size, and alone if of length 0.
        content: Vec<Extent>,
        /// The new length in bytes; 0 for a directory's marker.
        size_bytes: u64,
        /// When the content was last written: mtime becomes this, and ctime is not earlier. `None`: no time changes.
        mtime: Option<Timestamp>,
    },
    /// Names stored bytes for some ranges of a file; the rest of its content stays, up to the new size.
    /// `IsDirectory`, `Invalid` for anything else that is no file.
    Splice {
        /// The inode.
        ino: Ino,
        /// What is replaced, in bytes of the file. `Invalid` unless ascending and without overlap.
        ranges: Vec<Range<u64>>,
        /// What comes there; zeros where nothing does. `Invalid` unless ascending, without overlap, of some length,
        /// and within the ranges and the size.
        content: Vec<Extent>,
        /// The new length in bytes.
        size_bytes: u64,
        /// As in [`Op::Publish`].
        mtime: Option<Timestamp>,
    },
    /// A foreign object or common prefix is seen at a free name. `Exists` if the name is taken.
    Import {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Name,
        /// The new inode's number.
        ino: Ino,
        /// What was seen.
        seen: Observed,
    },
    /// A foreign change, or better knowledge of the same object. `Late` if the inode was changed or seen after the
    /// look, unless headers say more of the bytes it has; `Invalid` if a directory would become something else or the
    /// reverse.
    Refresh {
        /// The inode.
        ino: Ino,
        /// What was seen.
        seen: Observed,
    },
    /// The object behind a name was deleted by somebody else. `NotEmpty` for a directory with entries, `Late` if the
    /// inode was changed or seen after the look.
    Vanish {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Name,
        /// When nothing was found there.
        looked_at: Moment,
        /// As in [`Op::Unlink`].
        keep: bool,
    },
    /// Forgets what can be learned again; no time changes. `NotEmpty` for a directory with entries, `Invalid` for
    /// an inode with several names.
    Evict {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Name,
    },
    /// Sets or removes what the tree below a directory may hold; the root's is the whole volume. `NotDirectory`, `NoData`
    /// if there is none to remove, `Invalid` for a tree in another and for one whose files have names outside. Ops that
    /// make something larger fail with `OverQuota` or `VolumeFull` where a quota has no room, and those that would have
    /// an inode in two trees with `OtherTree`. To be committed by [`Namespace::set_quota`](crate::Namespace::set_quota).
    SetQuota {
        /// The directory.
        dir: Ino,
        /// The limits; `None`: no quota.
        limits: Option<Limits>,
    },
    /// Notes in the tables that an inode's attributes are newer than the headers of its object. No time changes.
    AwaitExport {
        /// The inode.
        ino: Ino,
    },
    /// An inode's attributes were exported to the headers of its object, as they were after the change with this number
    /// ([`Namespace::waiting_export`](crate::Namespace::waiting_export)). Changes nothing if there was a later one.
    Exported {
        /// The inode.
        ino: Ino,
        /// The number of the change.
        change: u64,
    },
    /// The last handle of an orphan is closed. `NotFound` unless it is an orphan.
    Purge {
        /// The orphan.
        ino: Ino,
    },
}

/// What rename does with an entry at the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameHow {
    /// Replaces it.
    Replace,
    /// Fails with `Exists`.
    NoReplace,
    /// Swaps both; fails with `NotFound` if there is none.
    Exchange,
}

/// What `SetXattr` expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrHow {
    /// Nothing.
    Set,
    /// The attribute must be new.
    Create,
    /// The attribute must exist.
    Replace,
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttrChanges {
    /// The 12 permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes. mtime becomes now unless it is given too.
    pub size_bytes: Option<u64>,
    /// Last read.
    pub atime: Option<Timestamp>,
    /// Last change of the content.
    pub mtime: Option<Timestamp>,
}

/// What the store showed of an object or prefix, as an inode's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// What it is.
    pub kind: Kind,
    /// Length in bytes; 0 for a directory.
    pub size_bytes: u64,
    /// The object; `None` for a directory without a marker.
    pub object: Option<Stored>,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for devices.
    pub rdev: u32,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Where a symbolic link leads, if that was read.
    pub target: Option<Bytes>,
    /// Whether headers said so; `false`: a listing's word.
    pub exact: bool,
    /// When the store was asked: what it showed may have changed since.
    pub looked_at: Moment,
}

/// What an op did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// The inode made, changed or moved, afterwards. `None` where it is gone.
    pub inode: Option<Inode>,
    /// The inode that lost its last name (unlinked, replaced by rename, vanished, evicted, purged), as it was with
    /// its home; an object at its path is the caller's to clean up.
    pub removed: Option<Inode>,
    /// Whether `removed` stays as an orphan until it is purged.
    pub orphaned: bool,
    /// Objects under keys of their own that the inode changed or removed has nothing in any more: the caller's to delete, where the
    /// op means that.
    pub released: Vec<ObjectKey>,
}
