//! Ops that initialise a volume: creating the root directory and leasing inode numbers.

use super::{create, records};
use crate::allocate::FIRST_INO;
use crate::codec::{decode_number, encode_number};
use crate::{Applied, FsError, Ino, Inode, Kind, OpContext, Txn, schema};

pub(super) fn root(
    txn: &mut impl Txn,
    context: &OpContext,
    mode: u16,
    uid: u32,
    gid: u32,
) -> Result<Applied, FsError> {
    if txn.get(&schema::inode(Ino::ROOT))?.is_some() {
        return Err(FsError::Exists);
    }
    let blank = create::blank(context, Ino::ROOT, Kind::Directory);
    let inode = Inode { mode: mode & 0o7777, uid, gid, ..blank };
    records::save(txn, None, &inode)?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

pub(super) fn lease(txn: &mut impl Txn, from: Ino, to: Ino) -> Result<Applied, FsError> {
    let key = schema::next_ino();
    let next = match txn.get(&key)? {
        Some(value) => Ino(decode_number(&value)?),
        None => FIRST_INO,
    };
    if from != next {
        return Err(FsError::StaleBase);
    }
    if to <= from {
        return Err(FsError::Invalid("the lease contains no inode numbers"));
    }
    txn.put(key, encode_number(to.0));
    Ok(Applied::default())
}
