//! Attributes that change.

use super::{records, xattr};
use crate::{Applied, AttrChanges, Ctx, FsError, Ino, Inode, Kind, Txn};
use store::Timestamp;

/// So many names can lead to one inode (as on ext4).
pub const LINKS_MAX: u32 = 65_000;

pub(super) fn set(
    txn: &mut impl Txn,
    ctx: &Ctx,
    ino: Ino,
    changes: &AttrChanges,
) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    let mut inode = Inode {
        mode: changes.mode.map_or(before.mode, |mode| mode & 0o7777),
        uid: changes.uid.unwrap_or(before.uid),
        gid: changes.gid.unwrap_or(before.gid),
        atime: changes.atime.unwrap_or(before.atime),
        mtime: changes.mtime.unwrap_or(before.mtime),
        ctime: ctx.now,
        exact: true,
        ..before.clone()
    };
    if let Some(size_bytes) = changes.size_bytes {
        match inode.kind {
            Kind::File => {}
            Kind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid("only a file's size can be set")),
        }
        resize(&mut inode, size_bytes);
        inode.mtime = changes.mtime.unwrap_or(ctx.now);
    }
    if changes.mode.is_some() {
        xattr::follow_mode(txn, &inode)?;
    }
    records::save(txn, Some(&before), &inode)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

pub(super) fn accessed(txn: &mut impl Txn, ino: Ino, atime: Timestamp) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    let inode = Inode { atime, ..before.clone() };
    records::save(txn, Some(&before), &inode)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

/// Cuts the content where the file now ends. The first extent stays, if only with length 0: it says which object is
/// there to be replaced.
fn resize(inode: &mut Inode, size_bytes: u64) {
    inode.size_bytes = size_bytes;
    for extent in &mut inode.content {
        extent.offset = extent.offset.min(size_bytes);
        extent.len = extent.len.min(size_bytes - extent.offset);
    }
    let mut index = 0;
    inode.content.retain(|extent| {
        index += 1;
        index == 1 || extent.len > 0
    });
}
