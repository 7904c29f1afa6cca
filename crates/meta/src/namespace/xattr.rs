//! Extended attributes, and the two of them that are ACLs.

use super::records;
use crate::acl::{self, Acl};
use crate::{Applied, Ctx, FsError, Ino, Inode, Kind, Merge, Txn, XattrHow, schema};

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
        _ if Acl::is_name(name) => return set_acl(txn, ctx, ino, name, value),
        _ => txn.put(key, value.to_vec()),
    }
    changed(txn, ctx, ino)
}

fn set_acl(txn: &mut impl Txn, ctx: &Ctx, ino: Ino, name: &[u8], value: &[u8]) -> Result<Applied, FsError> {
    let list = Acl::parse(value).ok_or(FsError::Invalid("the bytes are no ACL"))?;
    let before = records::load(txn, ino)?;
    let mut inode = Inode { ctime: ctx.now, ..before.clone() };
    match before.kind {
        Kind::Symlink => return Err(FsError::Invalid("a symbolic link has no ACL")),
        Kind::Directory => {}
        _ if name == acl::DEFAULT => return Err(FsError::Invalid("only a directory has a default ACL")),
        _ => {}
    }
    if name == acl::ACCESS {
        inode.mode = list.on_mode(before.mode);
        inode.exact = true;
    }
    let key = schema::xattr(ino, name);
    match name == acl::ACCESS && list.is_minimal() {
        true => txn.delete(key),
        false => txn.put(key, list.to_value().to_vec()),
    }
    records::save(txn, Some(&before), &inode)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

/// An ACL of an inode, and the op depends on it.
pub(super) fn acl(txn: &mut impl Txn, ino: Ino, name: &[u8]) -> Result<Option<Acl>, FsError> {
    let Some(value) = txn.get(&schema::xattr(ino, name))? else { return Ok(None) };
    let damaged = || FsError::Corrupt(format!("inode {ino} has an ACL that is none"));
    Acl::parse(&value).ok_or_else(damaged).map(Some)
}

/// The mode of an inode was set: its ACL says the same.
pub(super) fn follow_mode(txn: &mut impl Txn, inode: &Inode) -> Result<(), FsError> {
    if let Some(access) = acl(txn, inode.ino, acl::ACCESS)? {
        let access = access.with_mode(inode.mode);
        txn.put(schema::xattr(inode.ino, acl::ACCESS), access.to_value().to_vec());
    }
    Ok(())
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
