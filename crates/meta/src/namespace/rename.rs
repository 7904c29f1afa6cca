//! Rename, by the rules of rename(2).
//!
//! Two concurrent renames cannot create a cycle of directories: a rename depends on all dentries on the path from its target up to
//! the root, and a rename of any directory on that path removes one of these dentries. The op does not depend on the inodes on
//! the path, so creates in the directories above do not conflict.

use super::quota;
use super::records::{
    self, DEPTH_MAX, find_entry, load_entry_inode, parent_links, put_entry, require_dir, require_entry,
};
use super::unlink::{remove_empty_dir, remove_name};
use crate::{Applied, Dentry, FsError, Ino, Inode, Kind, Merge, Name, OpContext, RenameHow, Txn, schema};

/// A directory and a name in it.
type DentryKey = (Ino, Name);

pub(super) fn rename(
    txn: &mut impl Txn,
    context: &OpContext,
    from: &DentryKey,
    to: &DentryKey,
    how: RenameHow,
    keep: bool,
) -> Result<Applied, FsError> {
    let moved = require_entry(txn, from.0, &from.1)?;
    require_dir(txn, to.0)?;
    quota::require_same_tree(txn, from.0, to.0)?;
    let there = find_entry(txn, to.0, &to.1)?;
    match (how, there) {
        (RenameHow::NoReplace, Some(_)) => Err(FsError::Exists),
        (RenameHow::Exchange, None) => Err(FsError::NotFound),
        (_, Some(there)) if there.ino == moved.ino => {
            let inode = load_entry_inode(txn, moved)?;
            Ok(Applied { inode: Some(inode), ..Applied::default() })
        }
        (RenameHow::Exchange, Some(there)) => exchange(txn, context, (from, moved), (to, there)),
        (_, there) => replace(txn, context, (from, moved), (to, there), keep),
    }
}

/// Renames an entry, and removes the entry that has its new name.
fn replace(
    txn: &mut impl Txn,
    context: &OpContext,
    (from, moved): (&DentryKey, Dentry),
    (to, there): (&DentryKey, Option<Dentry>),
    keep: bool,
) -> Result<Applied, FsError> {
    require_outside_subtree(txn, moved, from, to)?;
    let replaced = match there {
        None => Applied::default(),
        Some(there) => match (moved.kind, there.kind) {
            (Kind::Directory, Kind::Directory) => remove_empty_dir(txn, there)?,
            (Kind::Directory, _) => return Err(FsError::NotDirectory),
            (_, Kind::Directory) => return Err(FsError::IsDirectory),
            _ => remove_name(txn, context, (to.0, &to.1), there, keep)?,
        },
    };
    txn.delete(schema::dentry(from.0, &from.1));
    put_entry(txn, to.0, &to.1, moved);
    let inode = move_name(txn, context, moved, from, to)?;
    let (moved_links, replaced_links) =
        (parent_links(moved.kind), there.map_or(0, |there| parent_links(there.kind)));
    txn.merge(schema::inode(from.0), Merge::entry(context.now, -moved_links))?;
    txn.merge(schema::inode(to.0), Merge::entry(context.now, moved_links - replaced_links))?;
    let also = replaced.inode.as_ref().map(|replaced| replaced.ino);
    Ok(Applied { inode: Some(inode), also, ..replaced })
}

/// Exchanges two entries.
fn exchange(
    txn: &mut impl Txn,
    context: &OpContext,
    (from, moved): (&DentryKey, Dentry),
    (to, there): (&DentryKey, Dentry),
) -> Result<Applied, FsError> {
    require_outside_subtree(txn, moved, from, to)?;
    require_outside_subtree(txn, there, to, from)?;
    put_entry(txn, from.0, &from.1, there);
    put_entry(txn, to.0, &to.1, moved);
    let inode = move_name(txn, context, moved, from, to)?;
    move_name(txn, context, there, to, from)?;
    let difference = parent_links(moved.kind) - parent_links(there.kind);
    txn.merge(schema::inode(from.0), Merge::entry(context.now, -difference))?;
    txn.merge(schema::inode(to.0), Merge::entry(context.now, difference))?;
    Ok(Applied { inode: Some(inode), also: Some(there.ino), ..Applied::default() })
}

/// Replaces one name of an inode by another, in the inode or in its additional names.
fn move_name(
    txn: &mut impl Txn,
    context: &OpContext,
    dentry: Dentry,
    from: &DentryKey,
    to: &DentryKey,
) -> Result<Inode, FsError> {
    let before = load_entry_inode(txn, dentry)?;
    let mut inode = Inode { ctime: context.now, ..before.clone() };
    if inode.home.as_ref() == Some(from) {
        inode.home = Some(to.clone());
    } else {
        txn.delete(schema::hard_link(inode.ino, from.0, &from.1));
        txn.put(schema::hard_link(inode.ino, to.0, &to.1), Vec::new());
    }
    records::save(txn, Some(&before), &inode)?;
    Ok(inode)
}

/// Fails with `CrossesItself` if `to` is in the moved directory or below it.
fn require_outside_subtree(
    txn: &mut impl Txn,
    moved: Dentry,
    from: &DentryKey,
    to: &DentryKey,
) -> Result<(), FsError> {
    if moved.kind != Kind::Directory || from.0 == to.0 {
        return Ok(());
    }
    let mut dir = to.0;
    for _ in 0..DEPTH_MAX {
        if dir == moved.ino {
            return Err(FsError::CrossesItself);
        }
        if dir == Ino::ROOT {
            return Ok(());
        }
        dir = parent(txn, dir)?;
    }
    Err(FsError::Corrupt(format!("the directories above inode {} form a cycle", to.0)))
}

/// Returns the parent of a directory and makes the op depend on the directory's dentry.
fn parent(txn: &mut impl Txn, dir: Ino) -> Result<Ino, FsError> {
    if let Some((parent, name)) = records::peek(txn, dir)?.home
        && find_entry(txn, parent, &name)?.is_some_and(|dentry| dentry.ino == dir)
    {
        return Ok(parent);
    }
    // Either the tables are damaged, or the directory moved between the two reads. In the second case the peeked inode is out of
    // date, and depending on it makes the commit conflict, so that the op is applied again.
    records::load(txn, dir)?;
    Err(FsError::Corrupt(format!("the primary name of directory {dir} does not refer to it")))
}
