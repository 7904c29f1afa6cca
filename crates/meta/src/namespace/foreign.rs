//! Ops for changes that other clients made to the bucket (import, refresh, vanish), and evict.

use super::create::{add, blank};
use super::records::{
    self, load_entry_inode, parent_links, put_entry, require_dir, require_entry, require_free_name,
    require_unused_ino,
};
use super::{export, extents, unlink, xattr};
use crate::{
    Applied, Content, Dentry, Extent, FsError, Ino, Inode, Kind, Merge, Moment, Name, Observed, OpContext,
    Refreshed, Stored, Txn, schema,
};

pub(super) fn import(
    txn: &mut impl Txn,
    context: &OpContext,
    parent: Ino,
    name: &Name,
    ino: Ino,
    seen: &Observed,
) -> Result<Applied, FsError> {
    require_dir(txn, parent)?;
    require_free_name(txn, parent, name)?;
    require_unused_ino(txn, ino)?;
    let mut inode = Inode { observed_at: seen.looked_at, ..blank(context, ino, seen.kind) };
    set_attributes(&mut inode, seen);
    inode.content = Content::of(&whole(seen, inode.size_bytes), inode.size_bytes);
    add(txn, parent, name, &mut inode)?;
    txn.merge(schema::inode(parent), Merge::links(parent_links(inode.kind)))?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

/// Changes an inode as an observation of its object says. Fails with `Late` if the observation is not newer and completes no listing.
pub(super) fn refresh(txn: &mut impl Txn, ino: Ino, seen: &Observed) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    if before.is_dir() != (seen.kind == Kind::Directory) {
        return Err(FsError::Invalid("a directory cannot become a file, nor a file a directory"));
    }
    if before.observed_at >= seen.looked_at && !completes_listing(&before, seen) {
        return Err(FsError::Late);
    }
    let mut inode = Inode { observed_at: before.observed_at.max(seen.looked_at), ..before.clone() };
    let mut released = Vec::new();
    if adds_information(&before, seen) {
        set_attributes(&mut inode, seen);
        // A crash took the record of our write, which began before the attributes were changed.
        let keeps_attributes = is_own_write(&before, seen) && export::is_waiting(txn, ino)?;
        if keeps_attributes {
            (inode.mode, inode.uid, inode.gid) = (before.mode, before.uid, before.gid);
        }
        let size_bytes = inode.size_bytes;
        released = extents::replace(txn, &mut inode, &whole(seen, size_bytes), size_bytes)?;
        if !has_same_bytes(&before, seen) && !keeps_attributes {
            // The attributes are now those of the new object, so there are no local ones left to export.
            export::remove_record(txn, ino)?;
        }
    }
    if inode.kind != before.kind {
        update_dentry_kinds(txn, &inode)?;
    }
    if inode.mode != before.mode {
        xattr::apply_mode_to_acl(txn, &inode)?;
    }
    records::save(txn, Some(&before), &inode)?;
    let refreshed = visible_change(&before, &inode);
    Ok(Applied { inode: Some(inode), released, refreshed, ..Applied::default() })
}

/// Returns whether an observed object is a write of ours to an inode, as far as attributes are concerned: it is in the write-back log, or has the
/// length and the mtime of the inode, whose object was in the log.
fn is_own_write(inode: &Inode, seen: &Observed) -> bool {
    let is_in_log = |object: &Stored| object.etag.is_provisional();
    let is_uploaded = inode.object().is_some_and(is_in_log)
        && seen.exact
        && (seen.size_bytes, seen.mtime) == (inode.size_bytes, inode.mtime);
    is_uploaded || seen.object.as_ref().is_some_and(is_in_log)
}

/// Returns the difference that a reader of an inode sees.
fn visible_change(before: &Inode, now: &Inode) -> Refreshed {
    let etag = |inode: &Inode| inode.object().map(|object| object.etag.clone());
    if etag(before) != etag(now) || before.target != now.target {
        return Refreshed::Content;
    }
    let attributes = |inode: &Inode| {
        let times = (inode.atime, inode.mtime, inode.ctime, inode.btime);
        (inode.kind, inode.mode, inode.uid, inode.gid, inode.rdev, inode.size_bytes, times)
    };
    if attributes(before) == attributes(now) { Refreshed::Nothing } else { Refreshed::Attributes }
}

/// Returns whether an observation adds information. Three observations do not: a listing of bytes whose authoritative attributes
/// are known; a common prefix of a directory that is known; an observation of an unchanged object at the path key while later
/// writes are stored in other objects.
fn adds_information(inode: &Inode, seen: &Observed) -> bool {
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

/// Returns whether the observation has the headers of bytes that only a listing has shown so far. Such an observation is used
/// even if it is older than the last one.
fn completes_listing(inode: &Inode, seen: &Observed) -> bool {
    seen.exact && !inode.exact && has_same_bytes(inode, seen)
}

fn has_same_bytes(inode: &Inode, seen: &Observed) -> bool {
    inode.object().map(|object| &object.etag) == seen.object.as_ref().map(|object| &object.etag)
}

/// Sets the inode's attributes to the observed ones. The content stays.
fn set_attributes(inode: &mut Inode, seen: &Observed) {
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

/// Returns the content under the mapping `Whole`: the observed object as a single extent, or none without an object.
fn whole(seen: &Observed, len: u64) -> Vec<Extent> {
    let extent = |object: &crate::Stored| Extent { offset: 0, len, object: object.clone(), object_offset: 0 };
    seen.object.iter().map(extent).collect()
}

/// Writes an inode's type into its dentries. Until its headers are read, a listed symbolic link is taken for a file.
fn update_dentry_kinds(txn: &mut impl Txn, inode: &Inode) -> Result<(), FsError> {
    let dentry = Dentry { ino: inode.ino, kind: inode.kind };
    let mut names = Vec::from_iter(inode.home.clone());
    for (key, _) in txn.scan(&schema::hard_links(inode.ino), usize::MAX)? {
        names.push(schema::link_of(&key)?);
    }
    for (parent, name) in names {
        put_entry(txn, parent, &name, dentry);
        txn.merge(schema::inode(parent), Merge::links(0))?;
    }
    Ok(())
}

/// Removes a name whose object is gone, unless the inode was observed later.
pub(super) fn vanish(
    txn: &mut impl Txn,
    context: &OpContext,
    (parent, name): (Ino, &Name),
    looked_at: Moment,
    keep: bool,
) -> Result<Applied, FsError> {
    let dentry = require_entry(txn, parent, name)?;
    if load_entry_inode(txn, dentry)?.observed_at >= looked_at {
        return Err(FsError::Late);
    }
    match dentry.kind {
        Kind::Directory => unlink::rmdir(txn, context, parent, name),
        _ => unlink::unlink(txn, context, parent, name, keep),
    }
}

/// Removes a name and its inode from the tables only; the object stays in the bucket.
pub(super) fn evict(txn: &mut impl Txn, parent: Ino, name: &Name) -> Result<Applied, FsError> {
    let dentry = require_entry(txn, parent, name)?;
    let applied = if dentry.kind == Kind::Directory {
        unlink::remove_empty_dir(txn, dentry)?
    } else {
        let inode = load_entry_inode(txn, dentry)?;
        if inode.nlink > 1 {
            return Err(FsError::Invalid("an inode with several names cannot be evicted"));
        }
        let released = records::erase(txn, &inode)?;
        Applied { removed: Some(inode), released, ..Applied::default() }
    };
    txn.delete(schema::dentry(parent, name));
    txn.merge(schema::inode(parent), Merge::links(-parent_links(dentry.kind)))?;
    Ok(applied)
}
