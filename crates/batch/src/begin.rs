//! The beginning of a batch: a lease of inode numbers, and the record by which the batch is merged once.

use meta::{Batch, FsError, Ino, Namespace, Op, OpContext};

/// Inode numbers that are leased for a batch.
pub const LEASE_INOS: u64 = 1 << 32;

/// Begins a batch of the subtree below a directory: leases inode numbers and records the batch.
pub fn begin(namespace: &Namespace, context: &OpContext, dir: Ino) -> Result<Batch, FsError> {
    let lease = namespace.lease(context, LEASE_INOS)?;
    let batch = Batch { dir, lease, began: context.now, at: context.at, outcome: None };
    namespace.commit(context, &Op::SetBatch { id: batch.id(), record: Some(batch.clone()) })?;
    Ok(batch)
}
