//! Extended attributes.

use super::records;
use crate::{Applied, Ctx, FsError, Ino, Merge, Txn, XattrHow, schema};

/// The longest name of an extended attribute, in bytes (Linux `XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// The longest value of an extended attribute, in bytes (Linux `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;

pub(super) fn set(
    txn: &mut impl Txn,
    ctx: &Ctx,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    how: XattrHow,
) -> Result<Applied, FsError> {
    records::peek(txn, ino)?;
    if !(1..=XATTR_NAME_BYTES_MAX).contains(&name.len()) || name.contains(&0) {
        return Err(FsError::Invalid("the name of an extended attribute has 1 to 255 bytes and no NUL"));
    }
    if value.len() > XATTR_VALUE_BYTES_MAX {
        return Err(FsError::Invalid("the value of an extended attribute has at most 65,536 bytes"));
    }
    let key = schema::xattr(ino, name);
    match (how, txn.get(&key)?) {
        (XattrHow::Create, Some(_)) => return Err(FsError::Exists),
        (XattrHow::Replace, None) => return Err(FsError::NoData),
        _ => txn.put(key, value.to_vec()),
    }
    changed(txn, ctx, ino)
}

pub(super) fn remove(txn: &mut impl Txn, ctx: &Ctx, ino: Ino, name: &[u8]) -> Result<Applied, FsError> {
    records::peek(txn, ino)?;
    let key = schema::xattr(ino, name);
    if txn.get(&key)?.is_none() {
        return Err(FsError::NoData);
    }
    txn.delete(key);
    changed(txn, ctx, ino)
}

/// Only a merge: two attributes of one inode can be set at the same time.
fn changed(txn: &mut impl Txn, ctx: &Ctx, ino: Ino) -> Result<Applied, FsError> {
    txn.merge(schema::inode(ino), Merge::changed(ctx.now))?;
    let inode = records::peek(txn, ino)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}
