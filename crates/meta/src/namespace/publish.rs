//! Ops that make stored objects the content of a file: publish and splice.

use super::{extents, records};
use crate::extent::{extents_fit, ranges_contain};
use crate::{Applied, Extent, FsError, Ino, Inode, Kind, OpContext, Txn};
use std::ops::Range;
use store::{ETag, Timestamp};

/// The new content; fields as in [`Op::Publish`](crate::Op::Publish) and [`Op::Splice`](crate::Op::Splice), which has no base.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewContent<'a> {
    pub(super) base: Option<&'a ETag>,
    pub(super) content: &'a [Extent],
    pub(super) size_bytes: u64,
    pub(super) mtime: Option<Timestamp>,
}

/// Replaces the whole content of a file. Fails with `StaleBase` unless its content is in the object that the op names as its base.
pub(super) fn publish(
    txn: &mut impl Txn,
    context: &OpContext,
    ino: Ino,
    new: NewContent<'_>,
) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    if before.object().map(|object| &object.etag) != new.base {
        return Err(FsError::StaleBase);
    }
    if !extents_fit(new.content, new.size_bytes) {
        return Err(FsError::Invalid("the extents overlap, are empty or extend beyond the size"));
    }
    if before.is_dir() && new.size_bytes > 0 {
        return Err(FsError::IsDirectory);
    }
    let mut inode = with_content_times(context, &before, new.mtime);
    let released = extents::replace(txn, &mut inode, new.content, new.size_bytes)?;
    save(txn, &before, inode, released)
}

/// Replaces ranges of the content of a file.
pub(super) fn splice(
    txn: &mut impl Txn,
    context: &OpContext,
    ino: Ino,
    ranges: &[Range<u64>],
    new: NewContent<'_>,
) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    match before.kind {
        Kind::File => {}
        Kind::Directory => return Err(FsError::IsDirectory),
        _ => return Err(FsError::Invalid("only a regular file has content")),
    }
    let fits = extents_fit(new.content, new.size_bytes) && ranges_contain(ranges, new.content);
    if !fits || new.content.iter().any(|extent| extent.len == 0) {
        return Err(FsError::Invalid(
            "the extents overlap, are empty or extend beyond the ranges or the size",
        ));
    }
    let mut inode = with_content_times(context, &before, new.mtime);
    let released = extents::splice(txn, &mut inode, ranges, new.content, new.size_bytes)?;
    save(txn, &before, inode, released)
}

/// Returns the inode with its times set for a change of its content.
fn with_content_times(context: &OpContext, before: &Inode, mtime: Option<Timestamp>) -> Inode {
    Inode {
        mtime: mtime.unwrap_or(before.mtime),
        ctime: before.ctime.max(mtime.unwrap_or(before.ctime)),
        observed_at: context.at,
        ..before.clone()
    }
}

/// Writes a changed inode, and returns it as the result of the op.
fn save(
    txn: &mut impl Txn,
    before: &Inode,
    inode: Inode,
    released: extents::Released,
) -> Result<Applied, FsError> {
    records::save(txn, Some(before), &inode)?;
    Ok(Applied { inode: Some(inode), released, ..Applied::default() })
}
