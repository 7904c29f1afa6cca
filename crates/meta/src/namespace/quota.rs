//! Accounting of quotas and enforcement of their limits.
//!
//! The root's quota counts every inode, including orphans. A directory's quota counts the inodes below the directory, which form
//! its *tree*. An inode with several names is counted where its primary name is. So all names of an inode must be in one tree,
//! and nothing moves from one tree to another. Trees are not nested.
//!
//! The usage changes in the commit that changes the counted inodes, and only by merges, so that two creates do not conflict. A
//! change that comes close to a limit depends on the usage, and makes concurrent changes conflict and check the usage again, so
//! that a limit is never exceeded.

use super::records;
use crate::codec::{decode_dentry, decode_inode, decode_number, decode_quota, encode_number, encode_quota};
use crate::record::KeyRange;
use crate::{Applied, FsError, Ino, Inode, Kind, Limits, Merge, Quota, Txn, Usage, schema};
use std::collections::BTreeSet;

/// While this many changes of the same size would fit below the limit, a change does not depend on the usage.
const HEADROOM_CHANGES: i64 = 64;

/// Rows read at a time while a quota's usage is counted.
const PAGE_ROWS: usize = 4096;

/// Returns what an inode adds to the usage of a quota.
pub(crate) fn usage(inode: &Inode) -> Usage {
    let bytes =
        if inode.kind == Kind::File { i64::try_from(inode.size_bytes).unwrap_or(i64::MAX) } else { 0 };
    Usage { bytes, files: 1 }
}

/// Updates usage when an inode changes from `before` to `after`; `None` if it is new or removed.
pub(super) fn charge(
    txn: &mut impl Txn,
    before: Option<&Inode>,
    after: Option<&Inode>,
) -> Result<(), FsError> {
    if txn.get(&schema::quotas_set())?.is_none() {
        return Ok(());
    }
    let (old, new) = (before.map(usage).unwrap_or_default(), after.map(usage).unwrap_or_default());
    add_usage(txn, Ino::ROOT, new.plus(old.negated()))?;
    let (from, to) = (tree_of_inode(txn, before)?, tree_of_inode(txn, after)?);
    if from == to {
        return from.map_or(Ok(()), |tree| add_usage(txn, tree, new.plus(old.negated())));
    }
    from.map_or(Ok(()), |tree| add_usage(txn, tree, old.negated()))?;
    to.map_or(Ok(()), |tree| add_usage(txn, tree, new))
}

/// Adds an amount, which may be negative, to the usage of a directory's quota, if it has one. Fails with `VolumeFull`
/// for the root or `OverQuota` if a limit would be exceeded.
fn add_usage(txn: &mut impl Txn, dir: Ino, amount: Usage) -> Result<(), FsError> {
    let key = schema::quota(dir);
    let Some(value) = txn.peek(&key)?.filter(|_| amount != Usage::default()) else { return Ok(()) };
    let with_headroom = Usage {
        bytes: amount.bytes.saturating_mul(HEADROOM_CHANGES),
        files: amount.files * HEADROOM_CHANGES,
    };
    if !decode_quota(&value)?.has_room(with_headroom) {
        let current = txn.get(&key)?.ok_or(FsError::NotFound)?;
        if !decode_quota(&current)?.has_room(amount) {
            return Err(if dir == Ino::ROOT { FsError::VolumeFull } else { FsError::OverQuota });
        }
        // Writing the number of quotas makes all concurrent changes conflict, also those that found enough headroom.
        change_quota_count(txn, 0)?;
    }
    Ok(txn.merge(key, Merge::Usage(amount))?)
}

/// Returns the tree in which an inode is counted; `None` if it is in no tree.
fn tree_of_inode(txn: &mut impl Txn, inode: Option<&Inode>) -> Result<Option<Ino>, FsError> {
    match inode.and_then(|inode| inode.home.as_ref()) {
        Some((parent, _)) => tree_of_entries(txn, *parent),
        None => Ok(None),
    }
}

/// Returns the tree in which a directory's entries are counted, and makes the op depend on it. `None`: they are in no
/// tree.
pub(super) fn tree_of_entries(txn: &mut impl Txn, dir: Ino) -> Result<Option<Ino>, FsError> {
    let found = txn.get(&schema::tree(dir))?;
    Ok(found.map(|value| decode_number(&value)).transpose()?.map(Ino))
}

/// Fails with `OtherTree` unless entries of both directories are counted in the same tree.
pub(super) fn require_same_tree(txn: &mut impl Txn, one: Ino, other: Ino) -> Result<(), FsError> {
    let is_same = one == other
        || txn.get(&schema::quotas_set())?.is_none()
        || tree_of_entries(txn, one)? == tree_of_entries(txn, other)?;
    if is_same { Ok(()) } else { Err(FsError::OtherTree) }
}

/// Puts a new directory into its parent's tree.
pub(super) fn inherit_tree(txn: &mut impl Txn, dir: &Inode) -> Result<(), FsError> {
    if txn.get(&schema::quotas_set())?.is_some()
        && let Some(tree) = tree_of_inode(txn, Some(dir))?
    {
        txn.put(schema::tree(dir.ino), encode_number(tree.0));
    }
    Ok(())
}

/// Removes the quota records of a directory that is being removed, its own quota included.
pub(super) fn remove_dir(txn: &mut impl Txn, dir: Ino) -> Result<(), FsError> {
    if txn.get(&schema::quotas_set())?.is_none() {
        return Ok(());
    }
    txn.delete(schema::tree(dir));
    if txn.get(&schema::quota(dir))?.is_some() {
        txn.delete(schema::quota(dir));
        change_quota_count(txn, -1)?;
    }
    Ok(())
}

/// Adds to the number of quotas. Every op that changes usage depends on this number.
fn change_quota_count(txn: &mut impl Txn, added: i64) -> Result<(), FsError> {
    let key = schema::quotas_set();
    let count = match txn.get(&key)? {
        Some(value) => decode_number(&value)?,
        None => 0,
    };
    match count.saturating_add_signed(added) {
        0 => txn.delete(key),
        count => txn.put(key, encode_number(count)),
    }
    Ok(())
}

/// Sets or removes a quota. No other commits may happen meanwhile: the op does not depend on the inodes that it counts, which
/// may be all inodes.
pub(super) fn set(txn: &mut impl Txn, dir: Ino, limits: Option<Limits>) -> Result<Applied, FsError> {
    let inode = records::peek(txn, dir)?;
    if !inode.is_dir() {
        return Err(FsError::NotDirectory);
    }
    let key = schema::quota(dir);
    let existing = txn.get(&key)?.map(|value| decode_quota(&value)).transpose()?;
    match (limits, existing) {
        (Some(limits), Some(quota)) => txn.put(key, encode_quota(&Quota { limits, ..quota })),
        (Some(limits), None) => {
            let used = if dir == Ino::ROOT { count_all(txn)? } else { mark_tree(txn, dir)? };
            txn.put(key, encode_quota(&Quota { limits, used }));
            change_quota_count(txn, 1)?;
        }
        (None, Some(_)) => {
            if dir != Ino::ROOT {
                let tree = Tree::walk(txn, dir)?;
                tree.dirs.iter().for_each(|dir| txn.delete(schema::tree(*dir)));
            }
            txn.delete(key);
            change_quota_count(txn, -1)?;
        }
        (None, None) => return Err(FsError::NoData),
    }
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

/// Counts the usage of the whole volume.
fn count_all(txn: &mut impl Txn) -> Result<Usage, FsError> {
    let mut used = Usage::default();
    for_each_row(txn, schema::inodes(), |_, key, value| {
        used = used.plus(usage(&decode_inode(schema::ino_of(key)?, value)?.inode));
        Ok(())
    })?;
    Ok(used)
}

/// Marks every directory of a new tree and returns the usage of the tree. `Invalid`: trees would be nested, or a file
/// also has a name outside the tree.
fn mark_tree(txn: &mut impl Txn, dir: Ino) -> Result<Usage, FsError> {
    if tree_of_entries(txn, dir)?.is_some() {
        return Err(FsError::Invalid("a directory above has a quota"));
    }
    let tree = Tree::walk(txn, dir)?;
    for below in &tree.dirs {
        if *below != dir && txn.peek(&schema::quota(*below))?.is_some() {
            return Err(FsError::Invalid("a directory below has a quota"));
        }
    }
    let mut used = Usage::default();
    for ino in &tree.inodes {
        let inode = records::peek(txn, *ino)?;
        let links = txn.scan(&schema::hard_links(*ino), usize::MAX)?;
        for (key, _) in links {
            tree.require_contains(schema::link_of(&key)?.0)?;
        }
        tree.require_contains(inode.home.as_ref().map_or(dir, |(parent, _)| *parent))?;
        used = used.plus(usage(&inode));
    }
    for below in &tree.dirs {
        txn.put(schema::tree(*below), encode_number(dir.0));
    }
    Ok(used)
}

/// A directory and all inodes below it.
struct Tree {
    /// All directories, including the top one.
    dirs: BTreeSet<Ino>,
    /// All inodes except the top directory.
    inodes: BTreeSet<Ino>,
}

impl Tree {
    /// Finds the directories and inodes below a directory.
    fn walk(txn: &mut impl Txn, dir: Ino) -> Result<Self, FsError> {
        let mut tree = Self { dirs: BTreeSet::from([dir]), inodes: BTreeSet::new() };
        let mut pending = vec![dir];
        while let Some(at) = pending.pop() {
            for_each_row(txn, schema::dentries(at), |_, _, value| {
                let dentry = decode_dentry(value)?;
                tree.inodes.insert(dentry.ino);
                if dentry.kind == Kind::Directory && tree.dirs.insert(dentry.ino) {
                    pending.push(dentry.ino);
                }
                Ok(())
            })?;
        }
        Ok(tree)
    }

    /// Fails unless a directory is part of the tree.
    fn require_contains(&self, dir: Ino) -> Result<(), FsError> {
        match self.dirs.contains(&dir) {
            true => Ok(()),
            false => Err(FsError::Invalid("a file in the directory also has a name outside")),
        }
    }
}

/// Calls `visit` for every row of a range.
fn for_each_row<T: Txn>(
    txn: &mut T,
    range: KeyRange,
    mut visit: impl FnMut(&mut T, &[u8], &[u8]) -> Result<(), FsError>,
) -> Result<(), FsError> {
    let mut range = range;
    loop {
        let rows = txn.scan(&range, PAGE_ROWS)?;
        for (key, value) in &rows {
            visit(txn, key, value)?;
        }
        let Some((last, _)) = rows.into_iter().next_back() else { return Ok(()) };
        // The next scan begins at the successor of the last key.
        range.from = last;
        range.from.push(0);
    }
}
