//! Typed reads and writes of records through a [`Txn`].

use super::{export, extents, quota};
use crate::codec::{
    decode_dentry, decode_extent_row, decode_inode, encode_dentry, encode_inode, encode_number,
};
use crate::record::{KeyRange, Value};
use crate::{Dentry, FsError, Ino, Inode, Kind, Name, SETGID, Txn, schema};

/// Maximum depth of a path. A walk to the root that is longer has met a cycle.
pub(super) const DEPTH_MAX: usize = 1 << 20;

/// Reads an inode and makes the op depend on it. Fails with `NotFound`.
pub(super) fn load(txn: &mut impl Txn, ino: Ino) -> Result<Inode, FsError> {
    let value = txn.get(&schema::inode(ino))?.ok_or(FsError::NotFound)?;
    decode_complete(txn, ino, &value)
}

/// Reads an inode. The op does not depend on it.
pub(super) fn peek(txn: &mut impl Txn, ino: Ino) -> Result<Inode, FsError> {
    let value = txn.peek(&schema::inode(ino))?.ok_or(FsError::NotFound)?;
    decode_complete(txn, ino, &value)
}

/// Decodes an inode, and reads its extents if its record has no summary of them.
fn decode_complete(txn: &mut impl Txn, ino: Ino, value: &Value) -> Result<Inode, FsError> {
    let record = decode_inode(ino, value)?;
    if record.unsummed == 0 {
        return Ok(record.inode);
    }
    let rows = txn.scan(&schema::extents(ino), usize::MAX)?;
    let extents = rows.iter().map(|(key, value)| decode_extent_row(key, value));
    Ok(record.summed(&extents.collect::<Result<Vec<_>, _>>()?))
}

/// Writes an inode and updates quotas and set-group records; `before` is `None` for a new inode. Does not write extent rows:
/// see [`extents`].
pub(super) fn save(txn: &mut impl Txn, before: Option<&Inode>, after: &Inode) -> Result<(), FsError> {
    quota::charge(txn, before, Some(after))?;
    if before.is_none() && after.is_dir() {
        quota::inherit_tree(txn, after)?;
    }
    let (old_group, new_group) = (before.and_then(inherited_group), inherited_group(after));
    match new_group {
        Some(gid) if old_group != new_group => {
            txn.put(schema::set_group(after.ino), encode_number(gid.into()))
        }
        None if old_group.is_some() => txn.delete(schema::set_group(after.ino)),
        _ => {}
    }
    txn.put(schema::inode(after.ino), encode_inode(after));
    Ok(())
}

/// Returns the group that new entries of a directory inherit, if it is a set-group-id directory.
pub(super) fn inherited_group(dir: &Inode) -> Option<u32> {
    (dir.kind == Kind::Directory && dir.mode & SETGID != 0).then_some(dir.gid)
}

/// Removes an inode and its records, except its names and its orphan record. The op must depend on the inode. Returns
/// the objects in which the inode's extents were.
pub(super) fn erase(txn: &mut impl Txn, inode: &Inode) -> Result<extents::Released, FsError> {
    let released = extents::erase(txn, inode)?;
    delete_range(txn, &schema::xattrs(inode.ino))?;
    export::remove_record(txn, inode.ino)?;
    quota::charge(txn, Some(inode), None)?;
    if inode.is_dir() {
        quota::remove_dir(txn, inode.ino)?;
    }
    if inherited_group(inode).is_some() {
        txn.delete(schema::set_group(inode.ino));
    }
    txn.delete(schema::inode(inode.ino));
    Ok(released)
}

/// Removes all records of a range.
pub(super) fn delete_range(txn: &mut impl Txn, range: &KeyRange) -> Result<(), FsError> {
    for (key, _) in txn.scan_sparse(range)? {
        txn.delete(key);
    }
    Ok(())
}

/// Reads the dentry of a name and makes the op depend on it; `None` if there is no such name.
pub(super) fn find_entry(txn: &mut impl Txn, dir: Ino, name: &Name) -> Result<Option<Dentry>, FsError> {
    let found = txn.get(&schema::dentry(dir, name))?;
    Ok(found.map(|value| decode_dentry(&value)).transpose()?)
}

/// Reads the dentry of a name. Fails with `NotFound`, or with `NotDirectory` if the parent is not a directory.
pub(super) fn require_entry(txn: &mut impl Txn, dir: Ino, name: &Name) -> Result<Dentry, FsError> {
    match find_entry(txn, dir, name)? {
        Some(dentry) => Ok(dentry),
        None => require_dir(txn, dir).and(Err(FsError::NotFound)),
    }
}

/// Reads the inode of a dentry and makes the op depend on it.
pub(super) fn load_entry_inode(txn: &mut impl Txn, dentry: Dentry) -> Result<Inode, FsError> {
    load(txn, dentry.ino).map_err(|error| match error {
        FsError::NotFound => {
            FsError::Corrupt(format!("a name refers to inode {}, which does not exist", dentry.ino))
        }
        error => error,
    })
}

/// Fails with `NotFound` or `NotDirectory` unless the parent of an entry is a directory. The op depends on the
/// existence of the directory only, so creates in one directory do not conflict.
pub(super) fn require_dir(txn: &mut impl Txn, dir: Ino) -> Result<(), FsError> {
    let key = schema::inode(dir);
    let value = txn.peek(&key)?.ok_or(FsError::NotFound)?;
    if decode_inode(dir, &value)?.inode.kind != Kind::Directory {
        return Err(FsError::NotDirectory);
    }
    txn.require_present(key);
    Ok(())
}

/// Fails with `Exists` unless the name is free.
pub(super) fn require_free_name(txn: &mut impl Txn, dir: Ino, name: &Name) -> Result<(), FsError> {
    match find_entry(txn, dir, name)? {
        None => Ok(()),
        Some(_) => Err(FsError::Exists),
    }
}

/// Fails with `Invalid` unless the inode number is unused.
pub(super) fn require_unused_ino(txn: &mut impl Txn, ino: Ino) -> Result<(), FsError> {
    match txn.get(&schema::inode(ino))? {
        None => Ok(()),
        Some(_) => Err(FsError::Invalid("the inode number is in use")),
    }
}

/// Writes a dentry.
pub(super) fn put_entry(txn: &mut impl Txn, dir: Ino, name: &Name, dentry: Dentry) {
    txn.put(schema::dentry(dir, name), encode_dentry(dentry));
}

/// Returns how much an entry of this type adds to its parent's link count: 1 for a directory, 0 otherwise.
pub(super) fn parent_links(kind: Kind) -> i32 {
    i32::from(kind == Kind::Directory)
}
