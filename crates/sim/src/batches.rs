//! Worlds of batches: up to four private namespaces of one volume, and two users who change it without a batch, with crashes and merges.
//!
//! The volume is an engine in memory behind faults. Each private namespace has its log on the machine's disk, in a temporary directory; a kill
//! drops it and resumes it from there. Objects are keys in a set. At each merge the world checks that
//! - the volume's tables are the effect of its log, op by op, and violate no invariant;
//! - each content that a file of the batch had at its end is the content of a file of the volume;
//! - each object to which a file refers exists, after the unused objects of the batch were deleted;
//! - each op was added, or has a record with its reason.

mod batch_world;
mod draw;
mod job;

use crate::{Failure, Report};

/// Runs the world of a seed.
pub fn world(seed: u64) -> Result<Report, Failure> {
    batch_world::BatchWorld::new(seed)?.run()
}
