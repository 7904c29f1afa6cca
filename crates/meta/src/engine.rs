//! The seam below the semantics: ordered bytes with conditional commits and a log.
//!
//! Every implementation runs [`conformance`](crate::conformance).

use crate::codec::DecodeError;
use crate::{Ctx, Merge, Op};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// The number of a commit; also the version of every key it wrote. Grows with each commit, not always by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seqno(pub u64);

/// A record's bytes; cloning shares them.
pub type Value = Arc<[u8]>;

/// Keys with their records, ascending.
pub type Rows = Vec<(Vec<u8>, Versioned)>;

/// A record and the commit that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// The record.
    pub value: Value,
    /// The commit that put it, or merged into it, last.
    pub version: Seqno,
}

/// Why an engine could not do its work. Every text is one line and holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine cannot be reached or failed; nothing has changed.
    #[error("the metadata engine failed: {0}")]
    Unavailable(String),
    /// There is no room for the change; nothing has changed.
    #[error("the metadata engine has no room: {0}")]
    Full(String),
    /// The engine failed during a commit, which may or may not have happened.
    #[error("the metadata engine failed, the change may or may not have happened: {0}")]
    Uncertain(String),
    /// The engine holds bytes that it cannot have been given.
    #[error("the metadata engine is damaged: {0}")]
    Corrupt(String),
}

impl From<DecodeError> for EngineError {
    fn from(error: DecodeError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// Why a commit did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A condition does not hold: read again and decide again.
    #[error("a condition of the commit does not hold")]
    Conflict,
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Why the log could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The log no longer reaches back to the cursor: look at the tables again, then go on from `head`.
    #[error("the log begins after the cursor")]
    Lagged {
        /// The head of the log when the call was made.
        head: Seqno,
    },
    /// No consumer of this name is registered.
    #[error("no log consumer '{0}'")]
    NoConsumer(String),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A half-open range of keys, `from` included, `to` not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRange {
    /// The first key that may be in the range.
    pub from: Vec<u8>,
    /// The first key that is beyond it.
    pub to: Vec<u8>,
}

impl KeyRange {
    /// The bounds as [`Reader::scan`] takes them.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(&self.from), Bound::Excluded(&self.to))
    }

    /// Whether the key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && key < self.to.as_slice()
    }
}

/// Reading. One call sees one state between two commits; two calls may see two.
pub trait Reader: Send + Sync {
    /// The record of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError>;

    /// The records of many keys, in their order, from one state.
    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError>;

    /// The first `limit` records of a range, ascending, from one state.
    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError>;

    /// The last record of a range.
    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError>;
}

/// An ordered table of bytes with atomic conditional commits and a log of the ops that made it.
pub trait Engine: Reader + fmt::Debug {
    /// Returns the tables as they are now: no later commit changes what it reads. While it exists, records that it can see take room although
    /// they were replaced or removed.
    fn snapshot(&self) -> Arc<dyn Reader>;

    /// Makes all of a commit happen, or nothing of it. One without writes and ops only checks its conditions.
    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError>;

    /// The ops committed after `cursor`, in commit order; about `limit` of them, but always whole commits, so that
    /// the last one's [`LoggedOp::seqno`] is the next cursor. Empty at the head.
    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError>;

    /// All commits that have returned survive the loss of power when this returns. Nothing to do where nothing survives.
    fn sync(&self) -> Result<(), EngineError>;

    /// Adds a sorted run of new keys and its log record in one commit. Conflict if a key of the run exists.
    fn ingest(&self, run: SortedRun, log: BatchRecord) -> Result<Seqno, CommitError>;

    /// Keeps the log from `at` on for a consumer; one of the same name starts anew.
    fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError>;

    /// How far a consumer is. `Lagged` if the log was cut before it got there.
    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError>;

    /// A consumer is done with the log up to `to`; going back is ignored.
    fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError>;

    /// Keeps nothing for a consumer any more; an unknown one is no error.
    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError>;

    /// The newest commit.
    fn head(&self) -> Seqno;

    /// About how many bytes of memory tables and log take; 0 where they are not in memory.
    fn memory_bytes(&self) -> u64;
}

/// How much log an engine keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogCap {
    /// Encoded bytes kept at most for registered consumers; the slowest then lags.
    pub bytes_max: u64,
    /// Ops kept where no consumer asks for more.
    pub tail_ops: usize,
}

impl Default for LogCap {
    fn default() -> Self {
        Self { bytes_max: 64 << 20, tail_ops: 1024 }
    }
}

/// What must hold for a commit to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The key was last written by this commit.
    Version {
        /// The key.
        key: Vec<u8>,
        /// The commit.
        version: Seqno,
    },
    /// The key exists, whatever its record.
    Present {
        /// The key.
        key: Vec<u8>,
    },
    /// The key does not exist.
    Absent {
        /// The key.
        key: Vec<u8>,
    },
    /// The range holds no key but those that this commit itself puts or deletes.
    RangeEmpty(KeyRange),
}

/// A change of the tables with its conditions and the ops it stands for. A key appears in one of `puts`, `deletes`
/// and `merges` at most, and once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commit {
    /// What must hold, checked against the state before the commit.
    pub conditions: Vec<Condition>,
    /// Records to write.
    pub puts: Vec<(Vec<u8>, Value)>,
    /// Keys to remove; one that does not exist is no error.
    pub deletes: Vec<Vec<u8>>,
    /// Merges into records; Conflict if one does not exist.
    pub merges: Vec<(Vec<u8>, Merge)>,
    /// What to log.
    pub ops: Vec<(Ctx, Op)>,
}

impl Commit {
    /// Whether it only checks conditions.
    pub fn is_check(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty() && self.merges.is_empty() && self.ops.is_empty()
    }
}

/// An op of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedOp {
    /// The commit it was part of.
    pub seqno: Seqno,
    /// Its context.
    pub ctx: Ctx,
    /// The op.
    pub op: Op,
}

/// Records with ascending keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SortedRun(Vec<(Vec<u8>, Value)>);

impl SortedRun {
    /// Takes the records; `None` unless the keys ascend strictly.
    pub fn new(rows: Vec<(Vec<u8>, Value)>) -> Option<Self> {
        rows.is_sorted_by(|a, b| a.0 < b.0).then_some(Self(rows))
    }

    /// The records, ascending.
    pub fn rows(&self) -> &[(Vec<u8>, Value)] {
        &self.0
    }

    /// The records, ascending.
    pub fn into_rows(self) -> Vec<(Vec<u8>, Value)> {
        self.0
    }
}

/// What accompanies a sorted run: the rest of its commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchRecord {
    /// What must hold.
    pub conditions: Vec<Condition>,
    /// Merges into directories that the run adds entries to.
    pub merges: Vec<(Vec<u8>, Merge)>,
    /// The ops that the run stands for.
    pub ops: Vec<(Ctx, Op)>,
}
