//! Records as ops see them: typed reads and writes through a [`Txn`].

use super::{export, extents, quota};
use crate::codec::{decode_dentry, decode_extent, decode_inode, encode_dentry, encode_inode, encode_number};
use crate::engine::{KeyRange, Value};
use crate::{Dentry, FsError, Ino, Inode, Kind, Name, SETGID, Txn, schema};

/// No path is deeper; a walk upwards that is longer goes in a circle.
pub(super) const DEPTH_MAX: usize = 1 << 20;

/// The inode, and the op depends on it.
pub(super) fn load(txn: &mut impl Txn, ino: Ino) -> Result<Inode, FsError> {
    let value = txn.get(&schema::inode(ino))?.ok_or(FsError::NotFound)?;
    complete(txn, ino, &value)
}

/// The inode, and the op does not depend on it.
pub(super) fn peek(txn: &mut impl Txn, ino: Ino) -> Result<Inode, FsError> {
    let value = txn.peek(&schema::inode(ino))?.ok_or(FsError::NotFound)?;
    complete(txn, ino, &value)
}

fn complete(txn: &mut impl Txn, ino: Ino, value: &Value) -> Result<Inode, FsError> {
    let record = decode_inode(ino, value)?;
    if record.unsummed == 0 {
        return Ok(record.inode);
    }
    let rows = txn.scan(&schema::extents(ino), usize::MAX)?;
    let extents = rows.iter().map(|(key, value)| decode_extent(schema::offset_of(key)?, value));
    Ok(record.summed(extents.collect::<Result<_, _>>()?))
}

/// Writes an inode over what it was before, `None` for a new one. Rows of its extents are not among it: see [`extents`].
pub(super) fn save(txn: &mut impl Txn, before: Option<&Inode>, after: &Inode) -> Result<(), FsError> {
    quota::charge(txn, before, Some(after))?;
    if before.is_none() && after.is_dir() {
        quota::inherit(txn, after)?;
    }
    let (had, has) = (before.and_then(group_for_entries), group_for_entries(after));
    match has {
        Some(gid) if had != has => txn.put(schema::set_group(after.ino), encode_number(gid.into())),
        None if had.is_some() => txn.delete(schema::set_group(after.ino)),
        _ => {}
    }
    txn.put(schema::inode(after.ino), encode_inode(after));
    Ok(())
}

/// The group that entries of a directory get, where that is not their maker's.
pub(super) fn group_for_entries(dir: &Inode) -> Option<u32> {
    (dir.kind == Kind::Directory && dir.mode & SETGID != 0).then_some(dir.gid)
}

/// Removes an inode with everything that belongs to it. The op must depend on the inode. Returns the objects that were its own.
pub(super) fn erase(txn: &mut impl Txn, inode: &Inode) -> Result<extents::Released, FsError> {
    let released = extents::erase(txn, inode)?;
    delete_range(txn, &schema::xattrs(inode.ino))?;
    export::forget(txn, inode.ino)?;
    quota::charge(txn, Some(inode), None)?;
    if inode.is_dir() {
        quota::forget(txn, inode.ino)?;
    }
    if group_for_entries(inode).is_some() {
        txn.delete(schema::set_group(inode.ino));
    }
    txn.delete(schema::inode(inode.ino));
    Ok(released)
}

/// Removes all records of a range.
pub(super) fn delete_range(txn: &mut impl Txn, range: &KeyRange) -> Result<(), FsError> {
    for (key, _) in txn.scan(range, usize::MAX)? {
        txn.delete(key);
    }
    Ok(())
}

/// What a name leads to, and the op depends on it.
pub(super) fn find_entry(txn: &mut impl Txn, dir: Ino, name: &Name) -> Result<Option<Dentry>, FsError> {
    let found = txn.get(&schema::dentry(dir, name))?;
    Ok(found.map(|value| decode_dentry(&value)).transpose()?)
}

/// What a name leads to; `NotFound`, or `NotDirectory` if the parent cannot have entries.
pub(super) fn entry(txn: &mut impl Txn, dir: Ino, name: &Name) -> Result<Dentry, FsError> {
    match find_entry(txn, dir, name)? {
        Some(dentry) => Ok(dentry),
        None => require_dir(txn, dir).and(Err(FsError::NotFound)),
    }
}

/// The inode behind an entry.
pub(super) fn load_entry(txn: &mut impl Txn, dentry: Dentry) -> Result<Inode, FsError> {
    load(txn, dentry.ino).map_err(|error| match error {
        FsError::NotFound => {
            FsError::Corrupt(format!("a name leads to inode {}, which does not exist", dentry.ino))
        }
        error => error,
    })
}

/// The parent of a new entry must be a directory, and still be there when the op is committed. What else changes in
/// it meanwhile does not matter: creators in one directory do not conflict.
pub(super) fn require_dir(txn: &mut impl Txn, dir: Ino) -> Result<(), FsError> {
    let key = schema::inode(dir);
    let value = txn.peek(&key)?.ok_or(FsError::NotFound)?;
    if decode_inode(dir, &value)?.inode.kind != Kind::Directory {
        return Err(FsError::NotDirectory);
    }
    txn.require_present(key);
    Ok(())
}

/// `Exists` unless the name is free.
pub(super) fn require_free(txn: &mut impl Txn, dir: Ino, name: &Name) -> Result<(), FsError> {
    match find_entry(txn, dir, name)? {
        None => Ok(()),
        Some(_) => Err(FsError::Exists),
    }
}

/// `Invalid` unless nothing has the inode number.
pub(super) fn require_unused(txn: &mut impl Txn, ino: Ino) -> Result<(), FsError> {
    match txn.get(&schema::inode(ino))? {
        None => Ok(()),
        Some(_) => Err(FsError::Invalid("the inode number is in use")),
    }
}

/// Writes a dentry.
pub(super) fn put_entry(txn: &mut impl Txn, dir: Ino, name: &Name, dentry: Dentry) {
    txn.put(schema::dentry(dir, name), encode_dentry(dentry));
}

/// 1 for a directory: what it adds to its parent's link count.
pub(super) fn links_of(kind: Kind) -> i32 {
    i32::from(kind == Kind::Directory)
}
