//! Names that move, by the rules of rename(2).
//!
//! Two concurrent renames cannot tie directories into a circle: the way from the target up to the root is read as
//! dentries, which the op depends on, and a rename of any directory on that way removes one of them. Inode records on
//! the way are only peeked at, so creators anywhere above do not conflict.

use super::quota;
use super::records::{self, DEPTH_MAX, entry, find_entry, links_of, load_entry, put_entry, require_dir};
use super::unlink::{take_dir, take_name};
use crate::{Applied, Ctx, Dentry, FsError, Ino, Inode, Kind, Merge, Name, RenameHow, Txn, schema};

/// A place for a name: directory and name.
type Place = (Ino, Name);

pub(super) fn rename(
    txn: &mut impl Txn,
    ctx: &Ctx,
    from: &Place,
    to: &Place,
    how: RenameHow,
    keep: bool,
) -> Result<Applied, FsError> {
    let moved = entry(txn, from.0, &from.1)?;
    require_dir(txn, to.0)?;
    quota::require_same_tree(txn, from.0, to.0)?;
    let there = find_entry(txn, to.0, &to.1)?;
    match (how, there) {
        (RenameHow::NoReplace, Some(_)) => Err(FsError::Exists),
        (RenameHow::Exchange, None) => Err(FsError::NotFound),
        (_, Some(there)) if there.ino == moved.ino => {
            let inode = load_entry(txn, moved)?;
            Ok(Applied { inode: Some(inode), ..Applied::default() })
        }
        (RenameHow::Exchange, Some(there)) => exchange(txn, ctx, (from, moved), (to, there)),
        (_, there) => replace(txn, ctx, (from, moved), (to, there), keep),
    }
}

fn replace(
    txn: &mut impl Txn,
    ctx: &Ctx,
    (from, moved): (&Place, Dentry),
    (to, there): (&Place, Option<Dentry>),
    keep: bool,
) -> Result<Applied, FsError> {
    refuse_own_subtree(txn, moved, from, to)?;
    let replaced = match there {
        None => Applied::default(),
        Some(there) => match (moved.kind, there.kind) {
            (Kind::Directory, Kind::Directory) => take_dir(txn, there)?,
            (Kind::Directory, _) => return Err(FsError::NotDirectory),
            (_, Kind::Directory) => return Err(FsError::IsDirectory),
            _ => take_name(txn, ctx, (to.0, &to.1), there, keep)?,
        },
    };
    txn.delete(schema::dentry(from.0, &from.1));
    put_entry(txn, to.0, &to.1, moved);
    let inode = change_place(txn, ctx, moved, from, to)?;
    let (gone, gained) = (links_of(moved.kind), there.map_or(0, |there| links_of(there.kind)));
    txn.merge(schema::inode(from.0), Merge::entry(ctx.now, -gone))?;
    txn.merge(schema::inode(to.0), Merge::entry(ctx.now, gone - gained))?;
    Ok(Applied { inode: Some(inode), ..replaced })
}

fn exchange(
    txn: &mut impl Txn,
    ctx: &Ctx,
    (from, moved): (&Place, Dentry),
    (to, there): (&Place, Dentry),
) -> Result<Applied, FsError> {
    refuse_own_subtree(txn, moved, from, to)?;
    refuse_own_subtree(txn, there, to, from)?;
    put_entry(txn, from.0, &from.1, there);
    put_entry(txn, to.0, &to.1, moved);
    let inode = change_place(txn, ctx, moved, from, to)?;
    change_place(txn, ctx, there, to, from)?;
    let difference = links_of(moved.kind) - links_of(there.kind);
    txn.merge(schema::inode(from.0), Merge::entry(ctx.now, -difference))?;
    txn.merge(schema::inode(to.0), Merge::entry(ctx.now, difference))?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

/// The inode learns that one of its names is another now.
fn change_place(
    txn: &mut impl Txn,
    ctx: &Ctx,
    dentry: Dentry,
    from: &Place,
    to: &Place,
) -> Result<Inode, FsError> {
    let before = load_entry(txn, dentry)?;
    let mut inode = Inode { ctime: ctx.now, ..before.clone() };
    if inode.home.as_ref() == Some(from) {
        inode.home = Some(to.clone());
    } else {
        txn.delete(schema::hard_link(inode.ino, from.0, &from.1));
        txn.put(schema::hard_link(inode.ino, to.0, &to.1), Vec::new());
    }
    records::save(txn, Some(&before), &inode)?;
    Ok(inode)
}

fn refuse_own_subtree(txn: &mut impl Txn, moved: Dentry, from: &Place, to: &Place) -> Result<(), FsError> {
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
    Err(FsError::Corrupt(format!("inode {} lies in a circle of directories", to.0)))
}

/// The parent of a directory; the op depends on the dentry that says so.
fn parent(txn: &mut impl Txn, dir: Ino) -> Result<Ino, FsError> {
    if let Some((parent, name)) = records::peek(txn, dir)?.home
        && find_entry(txn, parent, &name)?.is_some_and(|dentry| dentry.ino == dir)
    {
        return Ok(parent);
    }
    // Either damage, or the directory moved between the two reads: then what was peeked at is out of date, and
    // depending on it now makes the op start again.
    records::load(txn, dir)?;
    Err(FsError::Corrupt(format!("the home of directory {dir} does not lead to it")))
}
