//! Changes of attributes.

use super::{extents, records, xattr};
use crate::{Applied, AttrChanges, FsError, Ino, Inode, Kind, OpContext, Txn};
use store::Timestamp;

/// Maximum number of names of an inode (as on ext4).
pub const LINKS_MAX: u32 = 65_000;

pub(super) fn set(
    txn: &mut impl Txn,
    context: &OpContext,
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
        ctime: context.now,
        exact: true,
        ..before.clone()
    };
    let mut released = Vec::new();
    if let Some(size_bytes) = changes.size_bytes {
        match inode.kind {
            Kind::File => {}
            Kind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid("only a file's size can be set")),
        }
        released = extents::resize(txn, &mut inode, size_bytes)?;
        inode.mtime = changes.mtime.unwrap_or(context.now);
    }
    if changes.mode.is_some() {
        xattr::apply_mode_to_acl(txn, &inode)?;
    }
    records::save(txn, Some(&before), &inode)?;
    Ok(Applied { inode: Some(inode), released, ..Applied::default() })
}

pub(super) fn set_atime(txn: &mut impl Txn, ino: Ino, atime: Timestamp) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    let inode = Inode { atime, ..before.clone() };
    records::save(txn, Some(&before), &inode)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}
