//! The records of batches: ops on them, and reads.

use crate::batch::{Batch, BatchId, RefusedOp};
use crate::codec::{decode_batch, decode_refused_op, encode_batch, encode_refused_op};
use crate::engine::Reader;
use crate::record::KeyRange;
use crate::{Applied, FsError, Txn, schema};
use std::ops::Bound;

/// Begins a batch, records the outcome of its merge, or removes its record.
pub(super) fn set(txn: &mut impl Txn, id: BatchId, record: Option<&Batch>) -> Result<Applied, FsError> {
    let key = schema::batch(id);
    let found = txn.get(&key)?.map(|value| decode_batch(&value)).transpose()?;
    match (&found, record) {
        (_, Some(new)) if new.id() != id => {
            return Err(FsError::Invalid("the identity of a batch is the first number of its lease"));
        }
        (None, Some(Batch { outcome: None, .. })) => {}
        (None, _) => return Err(FsError::NotFound),
        // A batch is merged once.
        (Some(open), Some(Batch { outcome: Some(_), .. })) if open.outcome.is_none() => {}
        (Some(_), Some(_)) => return Err(FsError::Exists),
        (Some(_), None) => {
            if !txn.require_empty(&schema::refused_ops(id))? {
                return Err(FsError::NotEmpty);
            }
        }
    }
    match record {
        Some(new) => txn.put(key, encode_batch(new)),
        None => txn.delete(key),
    }
    Ok(Applied::default())
}

/// Records an op that the merge of a batch has refused, or removes the record.
pub(super) fn set_refused(
    txn: &mut impl Txn,
    id: BatchId,
    index: u64,
    record: Option<&RefusedOp>,
) -> Result<Applied, FsError> {
    if txn.get(&schema::batch(id))?.is_none() {
        return Err(FsError::NotFound);
    }
    let key = schema::refused_op(id, index);
    match record {
        Some(refused) => txn.put(key, encode_refused_op(refused)),
        None if txn.get(&key)?.is_none() => return Err(FsError::NotFound),
        None => txn.delete(key),
    }
    Ok(Applied::default())
}

/// Returns the record of a batch.
pub fn read_batch(reader: &(impl Reader + ?Sized), id: BatchId) -> Result<Option<Batch>, FsError> {
    let found = reader.get(&schema::batch(id))?;
    Ok(found.map(|found| decode_batch(&found.value)).transpose()?)
}

/// Returns all batches, ascending.
pub fn read_batches(reader: &(impl Reader + ?Sized)) -> Result<Vec<Batch>, FsError> {
    let KeyRange { mut from, to } = schema::batches();
    let mut batches = Vec::new();
    while let Some((key, row)) = reader.scan(Bound::Included(&from), Bound::Excluded(&to), 1)?.pop() {
        let (id, index) = schema::batch_of(&key)?;
        if index.is_none() {
            batches.push(decode_batch(&row.value)?);
        }
        from = schema::refused_ops(id).to;
    }
    Ok(batches)
}

/// Returns the first `limit` refused ops of a batch with an index of at least `from`, ascending.
pub fn read_refused_ops(
    reader: &(impl Reader + ?Sized),
    id: BatchId,
    from: u64,
    limit: usize,
) -> Result<Vec<(u64, RefusedOp)>, FsError> {
    let (from, to) = (schema::refused_op(id, from), schema::refused_ops(id).to);
    let rows = reader.scan(Bound::Included(&from), Bound::Excluded(&to), limit)?;
    let refused = rows.iter().filter_map(|(key, row)| {
        let index = schema::batch_of(key).ok()?.1?;
        Some(decode_refused_op(&row.value).map(|refused| (index, refused)))
    });
    Ok(refused.collect::<Result<_, _>>()?)
}
