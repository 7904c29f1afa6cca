//! Exports that wait: inodes whose attributes are newer than the headers of their objects.
//!
//! The record has the number of the last change, so that an export which ends after a further change does not remove the
//! record of that change. Invariant: no two changes of an inode in one mount have the same number, also where the record was
//! removed in between: two exports of a file may be under way when the first ends and the file is changed again.

use crate::codec::{decode_number, encode_number};
use crate::{Applied, Ctx, FsError, Ino, Txn, schema};

/// Notes that an inode's export waits.
pub(super) fn wait(txn: &mut impl Txn, ctx: &Ctx, ino: Ino) -> Result<Applied, FsError> {
    let inode = schema::inode(ino);
    txn.peek(&inode)?.ok_or(FsError::NotFound)?;
    txn.require_present(inode);
    let next = last_change(txn, ino)?.map_or(0, |last| last + 1);
    txn.put(schema::waiting_export(ino), encode_number(next.max(ctx.at.nanos)));
    Ok(Applied::default())
}

/// Removes the record, unless the inode was changed again after `change`.
pub(super) fn done(txn: &mut impl Txn, ino: Ino, change: u64) -> Result<Applied, FsError> {
    if last_change(txn, ino)? == Some(change) {
        txn.delete(schema::waiting_export(ino));
    }
    Ok(Applied::default())
}

/// Removes the record of an inode that is being removed.
pub(super) fn forget(txn: &mut impl Txn, ino: Ino) -> Result<(), FsError> {
    if last_change(txn, ino)?.is_some() {
        txn.delete(schema::waiting_export(ino));
    }
    Ok(())
}

fn last_change(txn: &mut impl Txn, ino: Ino) -> Result<Option<u64>, FsError> {
    let found = txn.get(&schema::waiting_export(ino))?;
    Ok(found.map(|value| decode_number(&value)).transpose()?)
}
