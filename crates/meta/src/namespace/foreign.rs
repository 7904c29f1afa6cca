//! What others did to the bucket, as ops of ours: import, refresh, vanish, evict.

use super::create::{add, blank};
use super::records::{
    self, entry, links_of, load_entry, put_entry, require_dir, require_free, require_unused,
};
use super::{export, extents, unlink, xattr};
use crate::{
    Applied, Content, Ctx, Dentry, Extent, FsError, Ino, Inode, Kind, Merge, Moment, Name, Observed, Txn,
    schema,
};

pub(super) fn import(
    txn: &mut impl Txn,
    ctx: &Ctx,
    parent: Ino,
    name: &Name,
    ino: Ino,
    seen: &Observed,
) -> Result<Applied, FsError> {
    require_dir(txn, parent)?;
    require_free(txn, parent, name)?;
    require_unused(txn, ino)?;
    let mut inode = Inode { observed_at: seen.looked_at, ..blank(ctx, ino, seen.kind) };
    learn(&mut inode, seen);
    inode.content = Content::of(whole(seen, inode.size_bytes), inode.size_bytes);
    add(txn, parent, name, &mut inode)?;
    if inode.is_dir() {
        txn.merge(schema::inode(parent), Merge::links(1))?;
    }
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

pub(super) fn refresh(txn: &mut impl Txn, ino: Ino, seen: &Observed) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    if before.is_dir() != (seen.kind == Kind::Directory) {
        return Err(FsError::Invalid("a directory and something else cannot be the same inode"));
    }
    if before.observed_at >= seen.looked_at && !says_more_of_the_same(&before, seen) {
        return Err(FsError::Late);
    }
    let mut inode = Inode { observed_at: before.observed_at.max(seen.looked_at), ..before.clone() };
    let mut released = Vec::new();
    if says_more(&before, seen) {
        learn(&mut inode, seen);
        let size_bytes = inode.size_bytes;
        released = extents::replace(txn, &mut inode, whole(seen, size_bytes), size_bytes)?;
        if !has_same_bytes(&before, seen) {
            // The attributes are those of the other object.
            export::forget(txn, ino)?;
        }
    }
    if inode.kind != before.kind {
        change_kind(txn, &inode)?;
    }
    if inode.mode != before.mode {
        xattr::follow_mode(txn, &inode)?;
    }
    records::save(txn, Some(&before), &inode)?;
    Ok(Applied { inode: Some(inode), released, ..Applied::default() })
}

/// Whether an observation adds to what is known. A listing's word does not while exact attributes of the same bytes
/// are known, a common prefix says nothing of a directory beyond that it is there, and headers nothing of what was stored
/// beside the object since.
fn says_more(inode: &Inode, seen: &Observed) -> bool {
    if inode.is_ahead() && has_same_bytes(inode, seen) {
        return false;
    }
    if seen.exact {
        return true;
    }
    match (inode.object(), &seen.object) {
        (_, None) if inode.is_dir() => false,
        (Some(known), Some(seen)) if known.etag == seen.etag => !inode.exact,
        (None, None) => !inode.exact,
        _ => true,
    }
}

/// Headers of the bytes that a listing has shown are true however old they are.
fn says_more_of_the_same(inode: &Inode, seen: &Observed) -> bool {
    seen.exact && !inode.exact && has_same_bytes(inode, seen)
}

fn has_same_bytes(inode: &Inode, seen: &Observed) -> bool {
    inode.object().map(|object| &object.etag) == seen.object.as_ref().map(|object| &object.etag)
}

/// Takes over everything that was seen but the content.
fn learn(inode: &mut Inode, seen: &Observed) {
    let same_bytes = has_same_bytes(inode, seen);
    let known_target = inode.target.take().filter(|_| same_bytes && seen.kind == Kind::Symlink);
    inode.kind = seen.kind;
    inode.mode = seen.mode & 0o7777;
    inode.uid = seen.uid;
    inode.gid = seen.gid;
    inode.rdev = seen.rdev;
    inode.size_bytes = if inode.is_dir() { 0 } else { seen.size_bytes };
    inode.atime = seen.atime;
    inode.mtime = seen.mtime;
    inode.ctime = seen.ctime;
    inode.btime = seen.btime;
    inode.target = seen.target.clone().or(known_target);
    inode.exact = seen.exact;
}

/// The Whole mapping: the object is the content.
fn whole(seen: &Observed, len: u64) -> Vec<Extent> {
    let extent = |object: &crate::Stored| Extent { offset: 0, len, object: object.clone(), object_offset: 0 };
    seen.object.iter().map(extent).collect()
}

/// A listing takes a symbolic link for a file until its headers are read.
fn change_kind(txn: &mut impl Txn, inode: &Inode) -> Result<(), FsError> {
    let dentry = Dentry { ino: inode.ino, kind: inode.kind };
    if let Some((parent, name)) = &inode.home {
        put_entry(txn, *parent, name, dentry);
    }
    for (key, _) in txn.scan(&schema::hard_links(inode.ino), usize::MAX)? {
        let (parent, name) = schema::link_of(&key)?;
        put_entry(txn, parent, &name, dentry);
    }
    Ok(())
}

pub(super) fn vanish(
    txn: &mut impl Txn,
    ctx: &Ctx,
    (parent, name): (Ino, &Name),
    looked_at: Moment,
    keep: bool,
) -> Result<Applied, FsError> {
    let dentry = entry(txn, parent, name)?;
    if load_entry(txn, dentry)?.observed_at >= looked_at {
        return Err(FsError::Late);
    }
    match dentry.kind {
        Kind::Directory => unlink::rmdir(txn, ctx, parent, name),
        _ => unlink::unlink(txn, ctx, parent, name, keep),
    }
}

pub(super) fn evict(txn: &mut impl Txn, parent: Ino, name: &Name) -> Result<Applied, FsError> {
    let dentry = entry(txn, parent, name)?;
    let applied = if dentry.kind == Kind::Directory {
        unlink::take_dir(txn, dentry)?
    } else {
        let inode = load_entry(txn, dentry)?;
        if inode.nlink > 1 {
            return Err(FsError::Invalid("an inode with several names cannot be learned again"));
        }
        let released = records::erase(txn, &inode)?;
        Applied { removed: Some(inode), released, ..Applied::default() }
    };
    txn.delete(schema::dentry(parent, name));
    if links_of(dentry.kind) > 0 {
        txn.merge(schema::inode(parent), Merge::links(-1))?;
    }
    Ok(applied)
}
