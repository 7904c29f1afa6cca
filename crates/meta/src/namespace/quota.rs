//! What quotas count, and when they refuse.
//!
//! The root's quota counts every inode, also those without a name. A directory's counts what lies below it: of an inode
//! with several names the home decides, which is why names of one inode do not lie in two trees, and nothing moves from
//! one tree to another. Trees do not lie in each other.
//!
//! Usage changes in the commit that changes what it counts, and only by merges, so that two creators do not conflict. A change that
//! comes close to a limit depends on the usage, and makes the changes under way look again at what is left: the limit holds.

use super::records;
use crate::codec::{decode_dentry, decode_inode, decode_number, decode_quota, encode_number, encode_quota};
use crate::engine::KeyRange;
use crate::{Applied, FsError, Ino, Inode, Kind, Limits, Merge, Quota, Txn, Usage, schema};
use std::collections::BTreeSet;

/// While so many changes of the same size would fit, a change does not depend on the usage.
const FAR_FROM_LIMIT: i64 = 64;

/// Rows read at a time where everything is counted.
const PAGE_ROWS: usize = 4096;

/// What an inode counts.
pub(crate) fn usage(inode: &Inode) -> Usage {
    let bytes =
        if inode.kind == Kind::File { i64::try_from(inode.size_bytes).unwrap_or(i64::MAX) } else { 0 };
    Usage { bytes, files: 1 }
}

/// An inode becomes another, comes or goes: so do the amounts used.
pub(super) fn charge(
    txn: &mut impl Txn,
    before: Option<&Inode>,
    after: Option<&Inode>,
) -> Result<(), FsError> {
    if txn.get(&schema::quotas_set())?.is_none() {
        return Ok(());
    }
    let (was, is) = (before.map(usage).unwrap_or_default(), after.map(usage).unwrap_or_default());
    add(txn, Ino::ROOT, is.plus(was.negated()))?;
    let (from, to) = (tree_of(txn, before)?, tree_of(txn, after)?);
    if from == to {
        return from.map_or(Ok(()), |tree| add(txn, tree, is.plus(was.negated())));
    }
    from.map_or(Ok(()), |tree| add(txn, tree, was.negated()))?;
    to.map_or(Ok(()), |tree| add(txn, tree, is))
}

fn add(txn: &mut impl Txn, dir: Ino, more: Usage) -> Result<(), FsError> {
    let key = schema::quota(dir);
    let Some(value) = txn.peek(&key)?.filter(|_| more != Usage::default()) else { return Ok(()) };
    let many = Usage { bytes: more.bytes.saturating_mul(FAR_FROM_LIMIT), files: more.files * FAR_FROM_LIMIT };
    if !decode_quota(&value)?.has_room(many) {
        let exact = txn.get(&key)?.ok_or(FsError::NotFound)?;
        if !decode_quota(&exact)?.has_room(more) {
            return Err(if dir == Ino::ROOT { FsError::VolumeFull } else { FsError::OverQuota });
        }
        // Changes that found room for themselves before this one depend on this number.
        count_quotas(txn, 0)?;
    }
    Ok(txn.merge(key, Merge::Usage(more))?)
}

/// The tree that an inode is counted in.
fn tree_of(txn: &mut impl Txn, inode: Option<&Inode>) -> Result<Option<Ino>, FsError> {
    match inode.and_then(|inode| inode.home.as_ref()) {
        Some((parent, _)) => tree_below(txn, *parent),
        None => Ok(None),
    }
}

/// The tree that a directory's entries are counted in, and the op depends on it.
pub(super) fn tree_below(txn: &mut impl Txn, dir: Ino) -> Result<Option<Ino>, FsError> {
    let found = txn.get(&schema::tree(dir))?;
    Ok(found.map(|value| decode_number(&value)).transpose()?.map(Ino))
}

/// `OtherTree` unless entries of both directories are counted in the same tree.
pub(super) fn require_same_tree(txn: &mut impl Txn, one: Ino, other: Ino) -> Result<(), FsError> {
    let is_same = one == other
        || txn.get(&schema::quotas_set())?.is_none()
        || tree_below(txn, one)? == tree_below(txn, other)?;
    if is_same { Ok(()) } else { Err(FsError::OtherTree) }
}

/// A new directory is of its parent's tree.
pub(super) fn inherit(txn: &mut impl Txn, dir: &Inode) -> Result<(), FsError> {
    if txn.get(&schema::quotas_set())?.is_some()
        && let Some(tree) = tree_of(txn, Some(dir))?
    {
        txn.put(schema::tree(dir.ino), encode_number(tree.0));
    }
    Ok(())
}

/// A directory is gone, and a quota of its own with it.
pub(super) fn forget(txn: &mut impl Txn, dir: Ino) -> Result<(), FsError> {
    if txn.get(&schema::quotas_set())?.is_none() {
        return Ok(());
    }
    txn.delete(schema::tree(dir));
    if txn.get(&schema::quota(dir))?.is_some() {
        txn.delete(schema::quota(dir));
        count_quotas(txn, -1)?;
    }
    Ok(())
}

/// Whoever changes what is counted depends on this number.
fn count_quotas(txn: &mut impl Txn, more: i64) -> Result<(), FsError> {
    let key = schema::quotas_set();
    let count = match txn.get(&key)? {
        Some(value) => decode_number(&value)?,
        None => 0,
    };
    match count.saturating_add_signed(more) {
        0 => txn.delete(key),
        count => txn.put(key, encode_number(count)),
    }
    Ok(())
}

/// Nobody else may commit meanwhile: what is counted here is not depended on, as it can be everything.
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
            let used = if dir == Ino::ROOT { count_all(txn)? } else { claim_tree(txn, dir)? };
            txn.put(key, encode_quota(&Quota { limits, used }));
            count_quotas(txn, 1)?;
        }
        (None, Some(_)) => {
            if dir != Ino::ROOT {
                let tree = Tree::walk(txn, dir)?;
                tree.dirs.iter().for_each(|dir| txn.delete(schema::tree(*dir)));
            }
            txn.delete(key);
            count_quotas(txn, -1)?;
        }
        (None, None) => return Err(FsError::NoData),
    }
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

fn count_all(txn: &mut impl Txn) -> Result<Usage, FsError> {
    let mut used = Usage::default();
    each(txn, schema::inodes(), |_, key, value| {
        used = used.plus(usage(&decode_inode(schema::ino_of(key)?, value)?.inode));
        Ok(())
    })?;
    Ok(used)
}

/// Marks every directory of a new tree, and counts what is in it.
fn claim_tree(txn: &mut impl Txn, dir: Ino) -> Result<Usage, FsError> {
    if tree_below(txn, dir)?.is_some() {
        return Err(FsError::Invalid("the directory lies in another that has a quota"));
    }
    let tree = Tree::walk(txn, dir)?;
    for below in &tree.dirs {
        if *below != dir && txn.peek(&schema::quota(*below))?.is_some() {
            return Err(FsError::Invalid("a directory in it has a quota"));
        }
    }
    let mut used = Usage::default();
    for ino in &tree.inodes {
        let inode = records::peek(txn, *ino)?;
        let links = txn.scan(&schema::hard_links(*ino), usize::MAX)?;
        for (key, _) in links {
            tree.must_hold(schema::link_of(&key)?.0)?;
        }
        tree.must_hold(inode.home.as_ref().map_or(dir, |(parent, _)| *parent))?;
        used = used.plus(usage(&inode));
    }
    for below in &tree.dirs {
        txn.put(schema::tree(*below), encode_number(dir.0));
    }
    Ok(used)
}

/// A directory with everything below it.
struct Tree {
    /// The directory itself included.
    dirs: BTreeSet<Ino>,
    /// Everything but the directory itself.
    inodes: BTreeSet<Ino>,
}

impl Tree {
    fn walk(txn: &mut impl Txn, dir: Ino) -> Result<Self, FsError> {
        let mut tree = Self { dirs: BTreeSet::from([dir]), inodes: BTreeSet::new() };
        let mut left = vec![dir];
        while let Some(at) = left.pop() {
            each(txn, schema::dentries(at), |_, _, value| {
                let dentry = decode_dentry(value)?;
                tree.inodes.insert(dentry.ino);
                if dentry.kind == Kind::Directory && tree.dirs.insert(dentry.ino) {
                    left.push(dentry.ino);
                }
                Ok(())
            })?;
        }
        Ok(tree)
    }

    fn must_hold(&self, dir: Ino) -> Result<(), FsError> {
        match self.dirs.contains(&dir) {
            true => Ok(()),
            false => Err(FsError::Invalid("a file in it has another name outside")),
        }
    }
}

/// Does something with every row of a range.
fn each<T: Txn>(
    txn: &mut T,
    range: KeyRange,
    mut work: impl FnMut(&mut T, &[u8], &[u8]) -> Result<(), FsError>,
) -> Result<(), FsError> {
    let mut range = range;
    loop {
        let rows = txn.scan(&range, PAGE_ROWS)?;
        for (key, value) in &rows {
            work(txn, key, value)?;
        }
        let Some((last, _)) = rows.into_iter().next_back() else { return Ok(()) };
        // The first key after it.
        range.from = last;
        range.from.push(0);
    }
}
