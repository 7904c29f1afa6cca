//! Names that go: unlink, rmdir, and the end of orphans.

use super::records::{self, entry, load_entry};
use crate::{Applied, Ctx, Dentry, FsError, Ino, Inode, Kind, Merge, Name, Txn, schema};

pub(super) fn unlink(
    txn: &mut impl Txn,
    ctx: &Ctx,
    parent: Ino,
    name: &Name,
    keep: bool,
) -> Result<Applied, FsError> {
    let dentry = entry(txn, parent, name)?;
    if dentry.kind == Kind::Directory {
        return Err(FsError::IsDirectory);
    }
    let applied = take_name(txn, ctx, (parent, name), dentry, keep)?;
    txn.delete(schema::dentry(parent, name));
    txn.merge(schema::inode(parent), Merge::entry(ctx.now, 0))?;
    Ok(applied)
}

pub(super) fn rmdir(txn: &mut impl Txn, ctx: &Ctx, parent: Ino, name: &Name) -> Result<Applied, FsError> {
    let dentry = entry(txn, parent, name)?;
    if dentry.kind != Kind::Directory {
        return Err(FsError::NotDirectory);
    }
    let applied = take_dir(txn, dentry)?;
    txn.delete(schema::dentry(parent, name));
    txn.merge(schema::inode(parent), Merge::entry(ctx.now, -1))?;
    Ok(applied)
}

/// An inode that is no directory loses a name; the dentry and its directory are the caller's.
pub(super) fn take_name(
    txn: &mut impl Txn,
    ctx: &Ctx,
    (parent, name): (Ino, &Name),
    dentry: Dentry,
    keep: bool,
) -> Result<Applied, FsError> {
    let before = load_entry(txn, dentry)?;
    if before.nlink > 1 {
        let inode = take_further_name(txn, ctx, (parent, name), &before)?;
        return Ok(Applied { inode: Some(inode), ..Applied::default() });
    }
    if !keep {
        let released = records::erase(txn, &before)?;
        return Ok(Applied { removed: Some(before), released, ..Applied::default() });
    }
    let orphan = Inode { nlink: 0, home: None, ctime: ctx.now, ..before.clone() };
    records::save(txn, Some(&before), &orphan)?;
    txn.put(schema::orphan(orphan.ino), Vec::new());
    Ok(Applied { inode: Some(orphan), removed: Some(before), orphaned: true, ..Applied::default() })
}

/// One of several names goes; if it is the home, the first of the others becomes it.
fn take_further_name(
    txn: &mut impl Txn,
    ctx: &Ctx,
    (parent, name): (Ino, &Name),
    before: &Inode,
) -> Result<Inode, FsError> {
    let mut inode = Inode { nlink: before.nlink - 1, ctime: ctx.now, ..before.clone() };
    if before.home.as_ref().is_some_and(|(dir, home)| *dir == parent && home == name) {
        let heirs = txn.scan(&schema::hard_links(inode.ino), 1)?;
        let (key, _) = heirs.into_iter().next().ok_or_else(|| {
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

pub(super) fn hand_on(txn: &mut impl Txn, ino: Ino, parent: Ino, name: &Name) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    let heir = (parent, name.clone());
    if before.home.as_ref() == Some(&heir) {
        return Ok(Applied { inode: Some(before), ..Applied::default() });
    }
    let key = schema::hard_link(ino, parent, name);
    txn.get(&key)?.ok_or(FsError::NotFound)?;
    txn.delete(key);
    if let Some((dir, old)) = &before.home {
        txn.put(schema::hard_link(ino, *dir, old), Vec::new());
    }
    let inode = Inode { home: Some(heir), ..before.clone() };
    records::save(txn, Some(&before), &inode)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

/// A directory goes if it is empty; the dentry and its directory are the caller's.
pub(super) fn take_dir(txn: &mut impl Txn, dentry: Dentry) -> Result<Applied, FsError> {
    if !txn.require_empty(&schema::dentries(dentry.ino))? {
        return Err(FsError::NotEmpty);
    }
    let before = load_entry(txn, dentry)?;
    let released = records::erase(txn, &before)?;
    Ok(Applied { removed: Some(before), released, ..Applied::default() })
}

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
