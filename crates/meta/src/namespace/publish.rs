//! Stored bytes become a file's content.

use super::records;
use crate::inode::extents_fit;
use crate::{Applied, Ctx, Extent, FsError, Ino, Inode, Txn};
use store::{ETag, Timestamp};

/// What to publish; fields as in [`Op::Publish`](crate::Op::Publish).
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
    let inode = Inode {
        content: new.content.to_vec(),
        size_bytes: new.size_bytes,
        mtime: new.mtime.unwrap_or(before.mtime),
        ctime: before.ctime.max(new.mtime.unwrap_or(before.ctime)),
        exact: true,
        observed_at: ctx.now,
        ..before.clone()
    };
    records::save(txn, Some(&before), &inode)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}
