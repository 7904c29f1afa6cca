//! The op log: its size and state, when it is cut off, and pages of its ops.
//!
//! The task that commits removes the oldest commits of a log beyond its limits: now and then, and before the log is read or asked for a
//! cursor. Ops that no consumer needs may be kept a little longer than the limit says, so that not every commit cuts.

use crate::error::Failure;
use meta::codec::decode_log_page;
use meta::{EngineError, LogCap, LogError, LoggedOp, Seqno};

/// The ops that no consumer needs may exceed their limit by a fraction: 1/`SLACK`.
const SLACK: usize = 8;

/// The size of the log: its ops, the bytes of ops of commits, and the bytes of ops of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogSize {
    /// Number of ops.
    pub ops: i64,
    /// Bytes of the ops of commits.
    pub bytes: i64,
    /// Bytes of the ops of runs.
    pub run_bytes: i64,
}

impl LogSize {
    /// Returns whether the oldest commits are to be removed, unless consumers need all of the log.
    pub(crate) fn exceeds(&self, cap: &LogCap) -> bool {
        exceeds(self.ops, (cap.tail_ops + cap.tail_ops / SLACK) as u64) || self.exceeds_maximum(cap)
    }

    /// Returns whether the oldest commits are to be removed even if consumers need them.
    fn exceeds_maximum(&self, cap: &LogCap) -> bool {
        exceeds(self.bytes, cap.bytes_max) || exceeds(self.run_bytes, cap.run_bytes_max)
    }
}

fn exceeds(size: i64, limit: u64) -> bool {
    u64::try_from(size).is_ok_and(|size| size > limit)
}

/// The state of the log at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogState {
    /// The newest commit.
    pub head: Seqno,
    /// The newest commit that was cut off; 0 if none was.
    pub cut: Seqno,
    /// The size of the log.
    pub size: LogSize,
    /// The first commit with ops in the log; `None` if there is none.
    pub first: Option<Seqno>,
    /// The lowest cursor of the consumers to whose cursors the log reaches back; `None` without such consumers.
    pub needed_after: Option<Seqno>,
}

impl LogState {
    /// Returns whether the oldest commits of the log must be cut off.
    pub(crate) fn is_trim_due(&self, cap: &LogCap) -> bool {
        let Some(first) = self.first else { return false };
        let is_needed = self.needed_after.is_some_and(|cursor| cursor < first);
        self.size.exceeds_maximum(cap) || !is_needed && self.size.exceeds(cap)
    }

    /// Fails with [`LogError::Lagged`] unless the log reaches back to the cursor.
    pub(crate) fn reaches(&self, cursor: Seqno) -> Result<(), LogError> {
        if cursor < self.cut { Err(LogError::Lagged { head: self.head }) } else { Ok(()) }
    }
}

/// Ops read from the log: those of whole commits, and of whole pages of runs.
#[derive(Debug)]
pub struct LogPage {
    /// Number of ops at which the page is full.
    limit: usize,
    ops: Vec<LoggedOp>,
}

impl LogPage {
    /// Creates an empty page for about `limit` ops.
    pub fn new(limit: usize) -> Self {
        Self { limit, ops: Vec::new() }
    }

    /// Returns whether the page has `limit` ops or more, and at least one.
    pub fn is_full(&self) -> bool {
        self.ops.len() >= self.limit && !self.ops.is_empty()
    }

    /// Adds the encoded ops of a commit, or of a page of a run.
    pub fn add(&mut self, seqno: Seqno, records: &[u8]) -> Result<(), Failure> {
        let records = decode_log_page(records).map_err(|error| Failure::Refused(EngineError::from(error)))?;
        self.ops.extend(records.into_iter().map(|record| LoggedOp::new(seqno, record)));
        Ok(())
    }

    /// Returns the ops.
    pub(crate) fn into_ops(self) -> Vec<LoggedOp> {
        self.ops
    }
}
