//! Exports that wait: inodes whose attributes are newer than the headers of their objects.
//!
//! The record counts the changes, so that an export which ends after a further change does not remove the record of
//! that change.

use crate::codec::{decode_number, encode_number};
use crate::{Applied, FsError, Ino, Txn, schema};

/// Notes that an inode's export waits.
pub(super) fn wait(txn: &mut impl Txn, ino: Ino) -> Result<Applied, FsError> {
    let inode = schema::inode(ino);
    txn.peek(&inode)?.ok_or(FsError::NotFound)?;
    txn.require_present(inode);
    let changes = changes(txn, ino)?.unwrap_or(0);
    txn.put(schema::waiting_export(ino), encode_number(changes + 1));
    Ok(Applied::default())
}

/// Removes the record, unless the inode was changed again after `change`.
pub(super) fn done(txn: &mut impl Txn, ino: Ino, change: u64) -> Result<Applied, FsError> {
    if changes(txn, ino)? == Some(change) {
        txn.delete(schema::waiting_export(ino));
    }
    Ok(Applied::default())
}

/// Removes the record of an inode that is being removed.
pub(super) fn forget(txn: &mut impl Txn, ino: Ino) -> Result<(), FsError> {
    if changes(txn, ino)?.is_some() {
        txn.delete(schema::waiting_export(ino));
    }
    Ok(())
}

fn changes(txn: &mut impl Txn, ino: Ino) -> Result<Option<u64>, FsError> {
    let found = txn.get(&schema::waiting_export(ino))?;
    Ok(found.map(|value| decode_number(&value)).transpose()?)
}
