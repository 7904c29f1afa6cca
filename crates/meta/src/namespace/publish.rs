//! Stored bytes become a file's content.

use super::records;
use crate::inode::{extents_fit, ranges_hold, spliced};
use crate::{Applied, Ctx, Extent, FsError, Ino, Inode, Kind, Txn};
use std::ops::Range;
use store::{ETag, Timestamp};

/// What to publish; fields as in [`Op::Publish`](crate::Op::Publish) and [`Op::Splice`](crate::Op::Splice), which
/// has no base.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content<'a> {
    pub(super) base: Option<&'a ETag>,
    pub(super) content: &'a [Extent],
    pub(super) size_bytes: u64,
    pub(super) mtime: Option<Timestamp>,
}

pub(super) fn publish(txn: &mut impl Txn, ctx: &Ctx, ino: Ino, new: Content<'_>) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    if before.object().map(|object| &object.etag) != new.base {
        return Err(FsError::StaleBase);
    }
    if !extents_fit(new.content, new.size_bytes) {
        return Err(FsError::Invalid("extents that overlap, are empty or reach beyond the size"));
    }
    if before.is_dir() && new.size_bytes > 0 {
        return Err(FsError::IsDirectory);
    }
    let content = new.content.to_vec();
    save(txn, ctx, &before, content, new.size_bytes, new.mtime)
}

pub(super) fn splice(
    txn: &mut impl Txn,
    ctx: &Ctx,
    ino: Ino,
    ranges: &[Range<u64>],
    new: Content<'_>,
) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    match before.kind {
        Kind::File => {}
        Kind::Directory => return Err(FsError::IsDirectory),
        _ => return Err(FsError::Invalid("only a file has content")),
    }
    let fits = extents_fit(new.content, new.size_bytes) && ranges_hold(ranges, new.content);
    if !fits || new.content.iter().any(|extent| extent.len == 0) {
        return Err(FsError::Invalid("extents that overlap, are empty or reach beyond what they replace"));
    }
    let content = spliced(&before.content, ranges, new.content, new.size_bytes);
    save(txn, ctx, &before, content, new.size_bytes, new.mtime)
}

fn save(
    txn: &mut impl Txn,
    ctx: &Ctx,
    before: &Inode,
    content: Vec<Extent>,
    size_bytes: u64,
    mtime: Option<Timestamp>,
) -> Result<Applied, FsError> {
    let inode = Inode {
        content,
        size_bytes,
        mtime: mtime.unwrap_or(before.mtime),
        ctime: before.ctime.max(mtime.unwrap_or(before.ctime)),
        observed_at: ctx.at,
        ..before.clone()
    };
    records::save(txn, Some(before), &inode)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}
