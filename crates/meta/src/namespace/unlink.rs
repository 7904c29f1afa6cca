//! Ops that remove names (unlink, rmdir), change the primary name, or remove an orphan (purge).

use super::records::{self, load_entry_inode, require_entry};
use crate::{Applied, Dentry, FsError, Ino, Inode, Kind, Merge, Name, OpContext, Txn, schema};

pub(super) fn unlink(
    txn: &mut impl Txn,
    context: &OpContext,
    parent: Ino,
    name: &Name,
    keep: bool,
) -> Result<Applied, FsError> {
    let dentry = require_entry(txn, parent, name)?;
    if dentry.kind == Kind::Directory {
        return Err(FsError::IsDirectory);
    }
    let applied = remove_name(txn, context, (parent, name), dentry, keep)?;
    txn.delete(schema::dentry(parent, name));
    txn.merge(schema::inode(parent), Merge::entry(context.now, 0))?;
    Ok(applied)
}

pub(super) fn rmdir(
    txn: &mut impl Txn,
    context: &OpContext,
    parent: Ino,
    name: &Name,
) -> Result<Applied, FsError> {
    let dentry = require_entry(txn, parent, name)?;
    if dentry.kind != Kind::Directory {
        return Err(FsError::NotDirectory);
    }
    let applied = remove_empty_dir(txn, dentry)?;
    txn.delete(schema::dentry(parent, name));
    txn.merge(schema::inode(parent), Merge::entry(context.now, -1))?;
    Ok(applied)
}

/// Removes a name from an inode that is not a directory, and the inode with its last name. The caller deletes the dentry and
/// updates its directory.
pub(super) fn remove_name(
    txn: &mut impl Txn,
    context: &OpContext,
    (parent, name): (Ino, &Name),
    dentry: Dentry,
    keep: bool,
) -> Result<Applied, FsError> {
    let before = load_entry_inode(txn, dentry)?;
    if before.nlink > 1 {
        let inode = remove_one_of_names(txn, context, (parent, name), &before)?;
        return Ok(Applied { inode: Some(inode), ..Applied::default() });
    }
    if !keep {
        let released = records::erase(txn, &before)?;
        return Ok(Applied { removed: Some(before), released, ..Applied::default() });
    }
    let orphan = Inode { nlink: 0, home: None, ctime: context.now, ..before.clone() };
    records::save(txn, Some(&before), &orphan)?;
    txn.put(schema::orphan(orphan.ino), Vec::new());
    Ok(Applied { inode: Some(orphan), removed: Some(before), orphaned: true, ..Applied::default() })
}

/// Removes one of several names. If the name is the primary name, the first additional name becomes the primary name.
fn remove_one_of_names(
    txn: &mut impl Txn,
    context: &OpContext,
    (parent, name): (Ino, &Name),
    before: &Inode,
) -> Result<Inode, FsError> {
    let mut inode = Inode { nlink: before.nlink - 1, ctime: context.now, ..before.clone() };
    if before.home.as_ref().is_some_and(|(dir, home)| *dir == parent && home == name) {
        let additional_names = txn.scan(&schema::hard_links(inode.ino), 1)?;
        let (key, _) = additional_names.into_iter().next().ok_or_else(|| {
            FsError::Corrupt(format!("inode {} has {} links but one name", before.ino, before.nlink))
        })?;
        inode.home = Some(schema::link_of(&key)?);
        txn.delete(key);
    } else {
        txn.delete(schema::hard_link(inode.ino, parent, name));
    }
    records::save(txn, Some(before), &inode)?;
    Ok(inode)
}

/// Makes another name of an inode its primary name; the previous primary name becomes an additional name.
pub(super) fn set_primary_name(
    txn: &mut impl Txn,
    ino: Ino,
    parent: Ino,
    name: &Name,
) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    let primary_name = (parent, name.clone());
    if before.home.as_ref() == Some(&primary_name) {
        return Ok(Applied { inode: Some(before), ..Applied::default() });
    }
    let key = schema::hard_link(ino, parent, name);
    txn.get(&key)?.ok_or(FsError::NotFound)?;
    txn.delete(key);
    if let Some((dir, old)) = &before.home {
        txn.put(schema::hard_link(ino, *dir, old), Vec::new());
    }
    let inode = Inode { home: Some(primary_name), ..before.clone() };
    records::save(txn, Some(&before), &inode)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

/// Removes a directory. Fails unless the directory is empty. The caller deletes the dentry and updates its directory.
pub(super) fn remove_empty_dir(txn: &mut impl Txn, dentry: Dentry) -> Result<Applied, FsError> {
    if !txn.require_empty(&schema::dentries(dentry.ino))? {
        return Err(FsError::NotEmpty);
    }
    let before = load_entry_inode(txn, dentry)?;
    let released = records::erase(txn, &before)?;
    Ok(Applied { removed: Some(before), released, ..Applied::default() })
}

/// Removes an orphan, an inode without a name.
pub(super) fn purge(txn: &mut impl Txn, ino: Ino) -> Result<Applied, FsError> {
    let key = schema::orphan(ino);
    if txn.get(&key)?.is_none() {
        return Err(FsError::NotFound);
    }
    let orphan = records::load(txn, ino)?;
    let released = records::erase(txn, &orphan)?;
    txn.delete(key);
    Ok(Applied { removed: Some(orphan), released, ..Applied::default() })
}
