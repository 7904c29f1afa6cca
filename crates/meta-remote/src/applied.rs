//! The outcome of transactions.

use crate::lease::Lease;
use crate::log::LogSize;
use crate::mergeable::Merged;
use meta::{CommitError, Seqno};

/// The outcome of a group: the head before it, and the numbers of the commits that conflicted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The newest commit before the group.
    pub base: Seqno,
    /// The numbers of the commits whose conditions did not hold.
    pub failed: Vec<i32>,
}

impl Outcome {
    /// Returns the answer to a commit of the group. `is_check` says that it changes nothing.
    pub(crate) fn answer(&self, number: i32, is_check: bool) -> Result<Seqno, CommitError> {
        match self.failed.contains(&number) {
            true => Err(CommitError::Conflict),
            false if is_check => Ok(self.base),
            false => Ok(Seqno(self.base.0 + u64::from(number.unsigned_abs()))),
        }
    }
}

/// A transaction that the database has answered.
#[derive(Debug)]
pub struct Applied {
    /// The outcome of its commits.
    pub outcome: Outcome,
    /// The newest commit after it, and the size of the log; `None` if the answer was lost.
    pub now: Option<(Seqno, LogSize)>,
    /// The records that were merged into; none if the answer was lost.
    pub merged: Vec<MergedRow>,
    /// The leases of strict sessions at that time, also of this one; none if the answer was lost.
    pub strict: Vec<Lease>,
}

/// A record after merges, as the database returned it.
#[derive(Debug)]
pub struct MergedRow {
    /// The key.
    pub key: Vec<u8>,
    /// The commit that wrote the record before.
    pub before: Seqno,
    /// The last commit that merged into it.
    pub version: Seqno,
    /// The numbers of the record.
    pub columns: Merged,
}
