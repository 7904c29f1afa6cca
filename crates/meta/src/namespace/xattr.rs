//! Extended attributes, including the two that hold ACLs.

use super::records;
use crate::acl::{self, Acl};
use crate::{Applied, FsError, Ino, Inode, Kind, Merge, OpContext, Txn, XattrHow, schema};

/// Maximum length of an extended attribute's name, in bytes (Linux `XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Maximum length of an extended attribute's value, in bytes (Linux `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;

pub(super) fn set(
    txn: &mut impl Txn,
    context: &OpContext,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    how: XattrHow,
) -> Result<Applied, FsError> {
    records::peek(txn, ino)?;
    if !(1..=XATTR_NAME_BYTES_MAX).contains(&name.len()) || name.contains(&0) {
        return Err(FsError::Invalid(
            "the name of an extended attribute must have 1 to 255 bytes and no NUL",
        ));
    }
    if value.len() > XATTR_VALUE_BYTES_MAX {
        return Err(FsError::Invalid("the value of an extended attribute may have at most 65,536 bytes"));
    }
    let key = schema::xattr(ino, name);
    match (how, txn.get(&key)?) {
        (XattrHow::Create, Some(_)) => return Err(FsError::Exists),
        (XattrHow::Replace, None) => return Err(FsError::NoData),
        _ if Acl::is_name(name) => return set_acl(txn, context, ino, name, value),
        _ => txn.put(key, value.to_vec()),
    }
    touch_ctime(txn, context, ino)
}

fn set_acl(
    txn: &mut impl Txn,
    context: &OpContext,
    ino: Ino,
    name: &[u8],
    value: &[u8],
) -> Result<Applied, FsError> {
    let acl = Acl::parse(value).ok_or(FsError::Invalid("the value is not a valid ACL"))?;
    let before = records::load(txn, ino)?;
    let mut inode = Inode { ctime: context.now, ..before.clone() };
    match before.kind {
        Kind::Symlink => return Err(FsError::Invalid("a symbolic link cannot have an ACL")),
        Kind::Directory => {}
        _ if name == acl::DEFAULT => return Err(FsError::Invalid("only a directory can have a default ACL")),
        _ => {}
    }
    if name == acl::ACCESS {
        inode.mode = acl.on_mode(before.mode);
        inode.exact = true;
    }
    let key = schema::xattr(ino, name);
    match name == acl::ACCESS && acl.is_minimal() {
        true => txn.delete(key),
        false => txn.put(key, acl.to_value().to_vec()),
    }
    records::save(txn, Some(&before), &inode)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

/// Reads an ACL of an inode and makes the op depend on it; `None` if the inode has no such ACL.
pub(super) fn load_acl(txn: &mut impl Txn, ino: Ino, name: &[u8]) -> Result<Option<Acl>, FsError> {
    let Some(value) = txn.get(&schema::xattr(ino, name))? else { return Ok(None) };
    let damaged = || FsError::Corrupt(format!("inode {ino} has an invalid ACL"));
    Acl::parse(&value).ok_or_else(damaged).map(Some)
}

/// Changes an inode's access ACL, if it has one, to agree with the mode that was set.
pub(super) fn apply_mode_to_acl(txn: &mut impl Txn, inode: &Inode) -> Result<(), FsError> {
    if let Some(access) = load_acl(txn, inode.ino, acl::ACCESS)? {
        let access = access.with_mode(inode.mode);
        txn.put(schema::xattr(inode.ino, acl::ACCESS), access.to_value().to_vec());
    }
    Ok(())
}

pub(super) fn remove(
    txn: &mut impl Txn,
    context: &OpContext,
    ino: Ino,
    name: &[u8],
) -> Result<Applied, FsError> {
    records::peek(txn, ino)?;
    let key = schema::xattr(ino, name);
    if txn.get(&key)?.is_none() {
        return Err(FsError::NoData);
    }
    txn.delete(key);
    touch_ctime(txn, context, ino)
}

/// Sets the change time. This is a merge, so that concurrent changes of different attributes do not conflict.
fn touch_ctime(txn: &mut impl Txn, context: &OpContext, ino: Ino) -> Result<Applied, FsError> {
    txn.merge(schema::inode(ino), Merge::changed(context.now))?;
    let inode = records::peek(txn, ino)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}
