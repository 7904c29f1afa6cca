//! The storage interface of the namespace: an ordered table of bytes with conditional commits and an op log.
//!
//! Every implementation is tested by the [`conformance`](crate::conformance) suite.

use crate::error::{CommitError, EngineError, LogError};
use crate::record::{KeyRange, Rows, Seqno, Value, Versioned};
use crate::run::RunBuilder;
use crate::{Effect, Merge, Op, OpContext};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Read access to the tables. Each call sees the state between two commits; two calls may see different states.
pub trait Reader: Send + Sync {
    /// Returns the record of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError>;

    /// Returns the records of several keys, in the order of the keys, from one state.
    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError>;

    /// Returns the first `limit` records of a range, ascending, from one state.
    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError>;

    /// Returns the last record of a range.
    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError>;
}

/// An ordered table of bytes with atomic conditional commits and a log of the committed ops.
pub trait Engine: Reader + fmt::Debug {
    /// Returns a view of the tables that no later commit changes. While the view exists, the records that it can read take space
    /// even after they are replaced or removed.
    fn snapshot(&self) -> Arc<dyn Reader>;

    /// Like [`Engine::snapshot`], with the newest commit that the view contains.
    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError>;
    /// Returns whether each call crosses a network. Then reads are worth batching, and a snapshot must not exist for long, for example while
    /// a file is open: it takes a connection, and the database cannot clean its tables up meanwhile.
    fn is_remote(&self) -> bool {
        false
    }

    /// Applies a commit completely or not at all. A commit without writes and ops only checks its conditions.
    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError>;

    /// Returns the ops committed after `cursor`, in commit order. Returns about `limit` ops, but always whole commits, so the
    /// [`LoggedOp::seqno`] of the last op is the next cursor. Returns no ops at the head. The ops of a [run](crate::Run) are read page by
    /// page, and each page counts as a commit.
    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError>;

    /// Returns once all completed commits are durable across a loss of power. Does nothing in an engine that is not durable.
    fn sync(&self) -> Result<(), EngineError>;

    /// Begins a run of many records, which one commit can add. Its records have a version of their own, which is reserved here.
    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError>;

    /// Registers a consumer, for which the log after `at` is kept. Registering a name again resets its cursor.
    fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError>;

    /// Returns a consumer's cursor. Fails with `Lagged` if the log after the cursor has been cut off.
    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError>;

    /// Moves a consumer's cursor forward to `to`, after the consumer has processed the log up to there. A lower `to` is ignored.
    fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError>;

    /// Removes a consumer. Removing an unknown consumer is no error.
    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError>;

    /// Returns the newest commit.
    fn head(&self) -> Seqno;

    /// Returns the approximate memory used by tables and log, in bytes; 0 if they are not in memory.
    fn memory_bytes(&self) -> u64;
}

/// Limits on the log that an engine keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogCap {
    /// Maximum encoded bytes kept for registered consumers. Beyond it the slowest consumer lags.
    pub bytes_max: u64,
    /// Number of ops kept when no consumer needs more.
    pub tail_ops: usize,
    /// Maximum encoded bytes of the ops of [runs](crate::Run) kept for registered consumers. They are in the tables, not in memory, and do
    /// not count for `bytes_max`.
    pub run_bytes_max: u64,
}

impl LogCap {
    /// The cap of a log that is kept completely for registered consumers, and not at all without them.
    pub const UNLIMITED: Self = Self { bytes_max: u64::MAX, tail_ops: 0, run_bytes_max: u64::MAX };
}

impl Default for LogCap {
    fn default() -> Self {
        Self { bytes_max: 64 << 20, tail_ops: 1024, run_bytes_max: 4 << 30 }
    }
}

/// A condition that must hold for a commit to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The given commit was the last one to write the key.
    Version {
        /// The key.
        key: Vec<u8>,
        /// The commit.
        version: Seqno,
    },
    /// The key exists, with any record.
    Present {
        /// The key.
        key: Vec<u8>,
    },
    /// The key does not exist.
    Absent {
        /// The key.
        key: Vec<u8>,
    },
    /// The range holds no keys other than those that this commit itself puts or deletes.
    RangeEmpty(KeyRange),
}

/// A change of the tables, with its conditions and the ops that it implements. A key appears at most once in `puts`, `deletes`
/// and `merges` together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commit {
    /// Conditions, checked against the state before the commit.
    pub conditions: Vec<Condition>,
    /// Records to write.
    pub puts: Vec<(Vec<u8>, Value)>,
    /// Keys to remove. Removing a key that does not exist is no error.
    pub deletes: Vec<Vec<u8>>,
    /// Merges into records. A record that does not exist is a conflict.
    pub merges: Vec<(Vec<u8>, Merge)>,
    /// Ops to log.
    pub ops: Vec<OpRecord>,
}

impl Commit {
    /// Returns whether the commit only checks conditions.
    pub fn is_check(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty() && self.merges.is_empty() && self.ops.is_empty()
    }

    /// Returns the keys that the commit writes or deletes, except by merges.
    pub fn written_keys(&self) -> impl Iterator<Item = &[u8]> {
        let puts = self.puts.iter().map(|(key, _)| key.as_slice());
        puts.chain(self.deletes.iter().map(Vec::as_slice))
    }
}

/// An op to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpRecord {
    /// The context of the op.
    pub context: OpContext,
    /// The op.
    pub op: Op,
    /// The effects that the op does not tell.
    pub effect: Effect,
}

/// An op in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedOp {
    /// The commit that contained the op.
    pub seqno: Seqno,
    /// The context of the op.
    pub context: OpContext,
    /// The op.
    pub op: Op,
    /// The effects that the op does not tell.
    pub effect: Effect,
}

impl LoggedOp {
    /// Returns the op of a log record.
    pub fn new(seqno: Seqno, record: OpRecord) -> Self {
        let OpRecord { context, op, effect } = record;
        Self { seqno, context, op, effect }
    }
}
