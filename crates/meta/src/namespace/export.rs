//! Waiting exports: records of inodes whose attributes are newer than the headers of their objects.
//!
//! The record holds the number of the last change, so that an export that ends after a further change does not remove the record
//! of that change. Invariant: no two changes of an inode in one mount have the same number, even if the record was removed in
//! between. Two exports of a file may be in progress when the first one ends and the file is changed again.

use crate::codec::{decode_number, encode_number};
use crate::{Applied, FsError, Ino, OpContext, Txn, schema};

/// Records that an inode's attributes wait to be exported.
pub(super) fn mark_waiting(txn: &mut impl Txn, context: &OpContext, ino: Ino) -> Result<Applied, FsError> {
    let inode = schema::inode(ino);
    txn.peek(&inode)?.ok_or(FsError::NotFound)?;
    txn.require_present(inode);
    let next = read_change_number(txn, ino)?.map_or(0, |last| last + 1);
    txn.put(schema::waiting_export(ino), encode_number(next.max(context.at.nanos)));
    Ok(Applied::default())
}

/// Removes the record after an export of the given change, unless the inode has been changed again.
pub(super) fn mark_done(txn: &mut impl Txn, ino: Ino, change: u64) -> Result<Applied, FsError> {
    if read_change_number(txn, ino)? == Some(change) {
        txn.delete(schema::waiting_export(ino));
    }
    Ok(Applied::default())
}

/// Removes the record, if there is one.
pub(super) fn remove_record(txn: &mut impl Txn, ino: Ino) -> Result<(), FsError> {
    if is_waiting(txn, ino)? {
        txn.delete(schema::waiting_export(ino));
    }
    Ok(())
}

/// Returns whether an inode's attributes wait to be exported.
pub(super) fn is_waiting(txn: &mut impl Txn, ino: Ino) -> Result<bool, FsError> {
    Ok(read_change_number(txn, ino)?.is_some())
}

/// Returns the number of the last change that waits to be exported; `None` if none waits.
fn read_change_number(txn: &mut impl Txn, ino: Ino) -> Result<Option<u64>, FsError> {
    let found = txn.get(&schema::waiting_export(ino))?;
    Ok(found.map(|value| decode_number(&value)).transpose()?)
}
