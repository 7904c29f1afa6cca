//! Ops: values that represent changes of the namespace.

use crate::{Batch, BatchId, Extent, Ino, Inode, Kind, Limits, Moment, Name, RefusedOp, Stored};
use bytes::Bytes;
use std::ops::Range;
use store::{ETag, ObjectKey, Timestamp};

/// The context of an op: who asked for it and when, set where the request arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpContext {
    /// The wall-clock time of the change, from which inodes get their times.
    pub now: Timestamp,
    /// The moment of the change, which orders it relative to observations of the store.
    pub at: Moment,
    /// The caller's user id.
    pub uid: u32,
    /// The caller's group id.
    pub gid: u32,
    /// The part of the system that makes the change.
    pub origin: Origin,
}

/// The part of the system that makes a change. Readers of the log need it to know which caches are up to date already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// The endpoint, another client of the bucket, or a background task: the cache of every front end may be stale. Ops of earlier
    /// builds, whose log records had no origin, count as these.
    #[default]
    Other,
    /// A front end. It has updated its own cache, others have not.
    FrontEnd,
    /// A service that changes only records of its own, which no front end shows.
    Bookkeeping,
}

/// A change of the namespace. [`apply`](crate::namespace::apply) defines what it does; an op that fails changes nothing.
///
/// Every op can fail with [`FsError::NotFound`](crate::FsError::NotFound) if an inode or name does not exist, and with
/// [`FsError::NotDirectory`](crate::FsError::NotDirectory) if a parent is not a directory. The variants list further errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Creates the root directory. Errors: `Exists` if there is one.
    Root {
        /// The 12 permission bits.
        mode: u16,
        /// User id of the owner.
        uid: u32,
        /// Id of the owning group.
        gid: u32,
    },
    /// Reserves the inode numbers `from..to` for the caller. Errors: `StaleBase` unless `from` is the first number that has not been
    /// leased.
    Lease {
        /// The first reserved number.
        from: Ino,
        /// The number after the last reserved one.
        to: Ino,
    },
    /// Creates an inode and its first name. In a set-group-id directory the new inode gets the directory's group instead of `gid`,
    /// and a new directory also gets the set-group-id bit. In a directory with a default ACL the new inode gets the permissions that
    /// both `mode` and the ACL grant; otherwise it gets `mode` without `umask`. Errors: `Exists` if the name is taken.
    Create {
        /// The directory.
        parent: Ino,
        /// The new name.
        name: Name,
        /// The new inode's number, from [`Namespace::allocate`](crate::Namespace::allocate).
        ino: Ino,
        /// The new inode's type.
        kind: Kind,
        /// The 12 permission bits.
        mode: u16,
        /// The umask of the calling process. Does not apply to symbolic links.
        umask: u16,
        /// User id of the owner.
        uid: u32,
        /// Id of the owning group.
        gid: u32,
        /// Device number of a character or block device; 0 for other types.
        rdev: u32,
        /// The target of a symbolic link, for which it is required.
        target: Option<Bytes>,
    },
    /// Creates a file without a name, with the attributes that [`Op::Create`] would give it. The file is an orphan until it is linked.
    CreateOrphan {
        /// The directory from which the file inherits group and ACL.
        parent: Ino,
        /// The new inode's number.
        ino: Ino,
        /// The 12 permission bits.
        mode: u16,
        /// As in [`Op::Create`].
        umask: u16,
        /// User id of the owner.
        uid: u32,
        /// Id of the owning group.
        gid: u32,
    },
    /// Gives an inode an additional name, or an orphan its first name. Errors: `Exists`, `IsDirectory`, `TooManyLinks`.
    Link {
        /// The inode.
        ino: Ino,
        /// The directory of the new name.
        parent: Ino,
        /// The new name.
        name: Name,
    },
    /// Removes a name of an inode that is not a directory. Errors: `IsDirectory`.
    Unlink {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Name,
        /// Whether the inode is open. If so, the inode without a name stays as an orphan until [`Op::Purge`].
        keep: bool,
    },
    /// Makes another name of an inode its primary name, from which path naming derives the object key. The previous primary name
    /// becomes an additional name. No times change. Errors: `NotFound` unless the name refers to the inode.
    HandOn {
        /// The inode.
        ino: Ino,
        /// The directory of the new primary name.
        parent: Ino,
        /// The new primary name.
        name: Name,
    },
    /// Removes an empty directory. Errors: `NotEmpty`, `NotDirectory`.
    Rmdir {
        /// The parent directory.
        parent: Ino,
        /// The name of the directory.
        name: Name,
    },
    /// Renames an entry, by the rules of rename(2). Errors: `Exists`, `NotEmpty`, `IsDirectory`, `NotDirectory`, `CrossesItself`.
    Rename {
        /// Old directory and name.
        from: (Ino, Name),
        /// New directory and name.
        to: (Ino, Name),
        /// How to treat an existing entry with the new name.
        how: RenameHow,
        /// As in [`Op::Unlink`], for the replaced inode.
        keep: bool,
    },
    /// Changes attributes, sets ctime to now, and changes an access ACL to agree with the mode. Errors when the size is set:
    /// `IsDirectory` for a directory, `Invalid` for other inodes that are not files.
    SetAttr {
        /// The inode.
        ino: Ino,
        /// The new attributes.
        changes: AttrChanges,
    },
    /// Sets the atime of an inode that was read. No other times change.
    Accessed {
        /// The inode.
        ino: Ino,
        /// The time of the last read.
        atime: Timestamp,
    },
    /// Sets an extended attribute. Setting an access [ACL](crate::acl) also sets the mode; an access ACL equivalent to the mode is not
    /// stored. Errors: `Exists` or `NoData` according to `how`; `Invalid` for a name or value that is too long, and for an invalid
    /// ACL.
    SetXattr {
        /// The inode.
        ino: Ino,
        /// The attribute's name, including the namespace (`user.x`).
        name: Box<[u8]>,
        /// The attribute's value.
        value: Bytes,
        /// Whether the attribute may, must or must not exist.
        how: XattrHow,
    },
    /// Removes an extended attribute. Errors: `NoData`.
    RemoveXattr {
        /// The inode.
        ino: Ino,
        /// The attribute's name.
        name: Box<[u8]>,
    },
    /// Replaces the whole content of an inode by stored objects. Errors: `StaleBase` if the current object's etag is not `base`.
    Publish {
        /// The inode.
        ino: Ino,
        /// The etag of the object that is replaced; `None` if nothing was stored.
        base: Option<ETag>,
        /// The new extents. `Invalid` unless they ascend without overlap and end within the size. An extent of length 0 must be the
        /// only one.
        content: Vec<Extent>,
        /// The new length in bytes; 0 for a directory's marker.
        size_bytes: u64,
        /// The time of the last write: the new mtime, and a lower bound of ctime. If `None`, no times change.
        mtime: Option<Timestamp>,
    },
    /// Replaces the content of some ranges of a file by stored objects. The other content stays, up to the new size.
    /// Errors: `IsDirectory`; `Invalid` for other inodes that are not files.
    Splice {
        /// The inode.
        ino: Ino,
        /// The replaced ranges of the file, in bytes. `Invalid` unless they ascend without overlap.
        ranges: Vec<Range<u64>>,
        /// The new extents. The rest of the ranges becomes holes. `Invalid` unless the extents ascend without overlap, are not empty, and
        /// lie within the ranges and the size.
        content: Vec<Extent>,
        /// The new length in bytes.
        size_bytes: u64,
        /// As in [`Op::Publish`].
        mtime: Option<Timestamp>,
    },
    /// Creates an inode for a foreign object or common prefix that was observed. Errors: `Exists` if the name is taken.
    Import {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Name,
        /// The new inode's number.
        ino: Ino,
        /// The observation.
        seen: Observed,
    },
    /// Updates an inode after an observation of a foreign change, or of more information about the same object. Errors: `Late` if the
    /// inode was changed or observed at or after `looked_at`, unless headers add authoritative attributes of the same bytes; `Invalid`
    /// if a directory would become another type of inode or the reverse.
    Refresh {
        /// The inode.
        ino: Ino,
        /// The observation.
        seen: Observed,
    },
    /// Removes a name whose object another client has deleted. Errors: `NotEmpty` for a directory with entries; `Late` if the inode
    /// was changed or observed at or after `looked_at`.
    Vanish {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Name,
        /// When the object was found to be missing.
        looked_at: Moment,
        /// As in [`Op::Unlink`].
        keep: bool,
    },
    /// Removes a name and its inode from the tables only; a later observation of the bucket adds them again. No times change. Errors:
    /// `NotEmpty` for a directory with entries, `Invalid` for an inode with several names.
    Evict {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Name,
    },
    /// Sets or removes the quota of the tree below a directory; the root's quota applies to the whole volume. Must be committed by
    /// [`Namespace::set_quota`](crate::Namespace::set_quota). Errors: `NotDirectory`; `NoData` if there is no quota to remove; `Invalid`
    /// for a tree within another tree, and for a tree with files that also have names outside of it.
    ///
    /// Afterwards, ops that would exceed the quota fail with `OverQuota` or `VolumeFull`, and ops after which an inode would be in
    /// two trees fail with `OtherTree`.
    SetQuota {
        /// The directory.
        dir: Ino,
        /// The new limits; `None` removes the quota.
        limits: Option<Limits>,
    },
    /// Records that an inode's attributes are newer than its object's headers and wait to be exported. No times change.
    AwaitExport {
        /// The inode.
        ino: Ino,
    },
    /// Removes the record of [`Op::AwaitExport`] after an export of the attributes as they were after the given change. Changes
    /// nothing if there was a later change.
    Exported {
        /// The inode.
        ino: Ino,
        /// The number of the exported change, from [`Namespace::waiting_export`](crate::Namespace::waiting_export).
        change: u64,
    },
    /// Removes an orphan, after its last handle was closed. Errors: `NotFound` unless the inode is an orphan.
    Purge {
        /// The orphan.
        ino: Ino,
    },
    /// Records a batch that begins, the outcome of its merge, or with `None` that the batch is forgotten. Errors: `Exists` for a batch that
    /// has begun, or that has been merged; `NotFound` for an outcome of an unknown batch; `NotEmpty` for forgetting a batch with refused ops.
    SetBatch {
        /// The batch.
        id: BatchId,
        /// The record.
        record: Option<Batch>,
    },
    /// Records an op that the merge of a batch has refused, or with `None` that its refusal is resolved. Errors: `NotFound`.
    SetRefusedOp {
        /// The batch.
        batch: BatchId,
        /// The index of the op in the batch.
        index: u64,
        /// The record.
        record: Option<RefusedOp>,
    },
}

/// How rename treats an existing entry with the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameHow {
    /// Replaces the existing entry, whose inode loses this name.
    Replace,
    /// Fails with `Exists` if there is an entry.
    NoReplace,
    /// Swaps the two entries. Fails with `NotFound` if there is no entry.
    Exchange,
}

/// Whether `SetXattr` expects an attribute to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrHow {
    /// The attribute may exist; it is created or replaced.
    Set,
    /// The attribute must not exist.
    Create,
    /// The attribute must exist.
    Replace,
}

/// Attributes to change. `None` leaves an attribute unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttrChanges {
    /// The 12 permission bits.
    pub mode: Option<u16>,
    /// User id of the owner.
    pub uid: Option<u32>,
    /// Id of the owning group.
    pub gid: Option<u32>,
    /// Length in bytes. Also sets mtime to now, unless `mtime` is given.
    pub size_bytes: Option<u64>,
    /// Time of the last read.
    pub atime: Option<Timestamp>,
    /// Time of the last change of the content.
    pub mtime: Option<Timestamp>,
}

/// An observation of an object or a common prefix in the store, as an inode's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Type of the inode.
    pub kind: Kind,
    /// Length in bytes; 0 for a directory.
    pub size_bytes: u64,
    /// The object; `None` for a directory without a marker.
    pub object: Option<Stored>,
    /// The 12 permission bits.
    pub mode: u16,
    /// User id of the owner.
    pub uid: u32,
    /// Id of the owning group.
    pub gid: u32,
    /// Device number of a character or block device; 0 for other types.
    pub rdev: u32,
    /// Time of the last read.
    pub atime: Timestamp,
    /// Time of the last change of the content.
    pub mtime: Timestamp,
    /// Time of the last change of the inode.
    pub ctime: Timestamp,
    /// Time of creation.
    pub btime: Timestamp,
    /// The target of a symbolic link, if it was read.
    pub target: Option<Bytes>,
    /// Whether the attributes are from the object's headers; `false` if they are from a listing.
    pub exact: bool,
    /// When the request to the store was sent: the object may have changed since then.
    pub looked_at: Moment,
}

/// The result of an op.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// The inode that was created, changed or moved, after the op. `None` if it was removed.
    pub inode: Option<Inode>,
    /// The inode that lost its last name, or the orphan that was purged, as it was before the op. The caller must delete the object
    /// at its path key, if the op means that.
    pub removed: Option<Inode>,
    /// Whether `removed` stays as an orphan until [`Op::Purge`].
    pub orphaned: bool,
    /// Objects under keys of their own to which the changed or removed inode no longer refers. The caller must delete them, if the op
    /// means that.
    pub released: Vec<ObjectKey>,
    /// A second inode whose attributes changed: the other one of an exchange, or a replaced one that has further names.
    pub also: Option<Ino>,
    /// The visible change by [`Op::Refresh`].
    pub refreshed: Refreshed,
}

/// The change of an inode by an observation, as a reader of the inode sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refreshed {
    /// Nothing changed: the observation confirmed what was known.
    #[default]
    Nothing,
    /// Only attributes changed.
    Attributes,
    /// The bytes changed, and perhaps attributes.
    Content,
}

/// The effects of an op that the op itself does not tell. They are logged with the op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effect {
    /// The inode under the name that the op moved or removed, if it still exists.
    pub inode: Option<Ino>,
    /// A further inode that lost a name, or got another one in exchange.
    pub other: Option<Ino>,
    /// The visible change by [`Op::Refresh`].
    pub refreshed: Refreshed,
}

impl Effect {
    /// Returns the effects of an op.
    pub fn of(op: &Op, applied: &Applied) -> Self {
        let names_inodes = !matches!(
            op,
            Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } | Op::Vanish { .. } | Op::Evict { .. }
        );
        if names_inodes {
            return Self { refreshed: applied.refreshed, ..Self::default() };
        }
        let inode = applied.inode.as_ref().map(|inode| inode.ino);
        let removed = applied.removed.as_ref().map(|inode| inode.ino);
        let other = applied.also.or(removed).filter(|other| inode != Some(*other));
        Self { inode, other, refreshed: Refreshed::Nothing }
    }
}
