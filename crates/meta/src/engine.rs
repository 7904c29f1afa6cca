//! The storage interface of the namespace: an ordered table of bytes with conditional commits and an op log.
//!
//! Every implementation is tested by the [`conformance`](crate::conformance) suite.

use crate::codec::decode_dentry;
use crate::error::{CommitError, EngineError, LogError};
use crate::record::{DentryWithInode, KeyRange, Rows, Seqno, Value, Versioned};
use crate::run::RunBuilder;
use crate::stored_locks::{LockChange, Locker, StoredLocks};
use crate::{Effect, Ino, Merge, Op, OpContext, schema};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Read access to the tables. Each call sees the state between two commits; two calls may see different states. A remote engine may answer
/// [`Reader::get`] and [`Reader::multi_get`] from a cache that other sessions' commits reach late, each key from a state of its own. The
/// conditions of a commit are checked against the newest state.
pub trait Reader: Send + Sync {
    /// Returns the record of a key; `None` if there is none.
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError>;

    /// Returns the record of a key from the newest state, not from a cache; `None` if there is none.
    fn get_newest(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.get(key)
    }

    /// Returns the records of several keys, in the order of the keys, from one state.
    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError>;

    /// Returns the record of a dentry's key with the record of its inode; `None` without a dentry.
    fn get_dentry(&self, key: &[u8]) -> Result<Option<DentryWithInode>, EngineError> {
        let Some(found) = self.get(key)? else { return Ok(None) };
        let inode = self.get(&schema::inode(decode_dentry(&found.value)?.ino))?;
        Ok(Some((found, inode)))
    }

    /// Returns the first `limit` records of a range, ascending, from one state.
    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError>;

    /// Returns the last record of a range; `None` if it has none.
    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError>;
}

/// An ordered table of bytes with atomic conditional commits and a log of the committed ops.
pub trait Engine: Reader + fmt::Debug {
    /// Returns a view of the tables that no later commit changes. While the view exists, the records that it can read take space
    /// even after they are replaced or removed. Fails in an engine without snapshots.
    fn snapshot(&self) -> Result<Arc<dyn Reader>, EngineError> {
        Ok(self.snapshot_with_head()?.0)
    }

    /// Like [`Engine::snapshot`]. Returns also the newest commit that the view contains.
    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError>;

    /// Returns whether a snapshot may exist for long, for example while a file is open. `false` for an engine without snapshots, and for
    /// a remote one: there a snapshot takes a connection, and the database cannot clean its tables up meanwhile.
    fn has_lasting_snapshots(&self) -> bool {
        !self.is_remote()
    }

    /// Returns whether each call crosses a network. Then reads are worth batching.
    fn is_remote(&self) -> bool {
        false
    }

    /// Returns whether other sessions, for example those of other machines, may commit while this one is open.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns whether no other session is alive now. A session that has been silent for a long time does not count.
    fn is_alone(&self) -> Result<bool, EngineError> {
        Ok(true)
    }

    /// Makes all later commits fail once the engine has lost one of the commits that it has made until now, for example after a failover of a
    /// database to an earlier state.
    fn rely_on_commits(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Sets the callback that is notified of other sessions' commits. A thread of the engine calls it, and it must not wait. When it is called
    /// with [`News::Commits`] or [`News::Everything`], [`Reader::get`] no longer answers with older records.
    fn watch(&self, _tell: Box<dyn Fn(News) + Send + Sync>) {}

    /// Notes that the owner of the engine uses nothing any more that the commits of other sessions up to `to` have replaced.
    fn acknowledge(&self, _to: Seqno) {}

    /// Returns once the commits of other sessions up to `to` have been acknowledged by [`Engine::acknowledge`]. Fails after the budget of a
    /// call.
    fn wait_acknowledged(&self, _to: Seqno) -> Result<(), EngineError> {
        Ok(())
    }

    /// Returns once the records that this session knows are current, if it is a strict session, for which the commits of other sessions wait.
    /// Fails after the budget of a call.
    fn check_current(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Returns once this session has a lease, if it shares the volume. Fails after the budget of a call.
    fn wait_for_lease(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Returns this session as an owner of locks; `None` if its lease has expired, or may have.
    fn locker(&self) -> Option<Locker> {
        None
    }

    /// Returns the number of this session; `None` in an engine that is not shared.
    fn session(&self) -> Option<i64> {
        None
    }

    /// Returns the locks of a file. Fails in an engine that is not shared.
    fn locks_of(&self, _ino: u64) -> Result<StoredLocks, EngineError> {
        Err(EngineError::Unavailable("the engine keeps no locks".into()))
    }

    /// Replaces the locks of a file, unless other ones are stored than the caller has seen. Returns whether they were replaced, and the
    /// locks that are stored now. Fails if the lease of this session has expired.
    fn replace_locks(&self, _change: LockChange<'_>) -> Result<(bool, StoredLocks), EngineError> {
        Err(EngineError::Unavailable("the engine keeps no locks".into()))
    }

    /// Applies a commit completely or not at all, and returns its number. A commit without writes and ops only checks
    /// its conditions and returns the newest commit.
    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError>;

    /// Returns the ops committed after `cursor`, in commit order. Returns about `limit` ops, but always whole commits, so the
    /// [`LoggedOp::seqno`] of the last op is the next cursor. Returns no ops at the head. The ops of a [run](crate::Run) are read page by
    /// page, and each page counts as a commit.
    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError>;

    /// Returns the failure after which the engine refuses all changes until it is opened again; `None` if it accepts changes.
    fn failure(&self) -> Option<EngineError> {
        None
    }

    /// Returns once all completed commits are durable across a loss of power. Does nothing in an engine that is not durable.
    fn sync(&self) -> Result<(), EngineError>;

    /// Begins a run of many records, which one commit can add. Its records have a version of their own, which is reserved here.
    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError>;

    /// Registers a consumer, for which the log after `at` is kept. Registering a name again resets its cursor.
    fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError>;

    /// Returns a consumer's cursor: the last commit that it has processed. Fails with `Lagged` if the log after the cursor has been cut off.
    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError>;

    /// Moves a consumer's cursor forward to `to`, after the consumer has processed the log up to there. A lower `to` is ignored.
    fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError>;

    /// Removes a consumer. Removing an unknown consumer is no error.
    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError>;

    /// Returns the sequence number of the newest commit; 0 before the first.
    fn head(&self) -> Seqno;

    /// Returns the approximate memory used by tables and log, in bytes; 0 if they are not in memory.
    fn memory_bytes(&self) -> u64;
}

/// A notification of changes that were not made by own commits of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// From now on, reads may show changes that the next notification announces.
    Coming,
    /// Other sessions have committed.
    Commits {
        /// The commit before the first one that may be theirs.
        after: Seqno,
        /// Their last commit.
        to: Seqno,
    },
    /// Anything may have changed up to a commit: the log was cut off before it was read, or the database has lost commits that it had
    /// answered.
    Everything {
        /// The newest commit.
        to: Seqno,
    },
    /// Another session has released locks of a file.
    Unlocked(Ino),
    /// The lease of this session has expired: other sessions may have taken its locks.
    LocksLost,
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
        /// The sequence number of that commit.
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
    /// Keys and records to write, in place of earlier records.
    pub puts: Vec<(Vec<u8>, Value)>,
    /// Keys to remove. Removing a key that does not exist is no error.
    pub deletes: Vec<Vec<u8>>,
    /// Merges into records. A record that does not exist is a conflict.
    pub merges: Vec<(Vec<u8>, Merge)>,
    /// The ops that the change implements, which are appended to the log.
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

/// An op as a commit appends it to the log.
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
    /// Returns the op that a commit has appended to the log.
    pub fn new(seqno: Seqno, record: OpRecord) -> Self {
        let OpRecord { context, op, effect } = record;
        Self { seqno, context, op, effect }
    }
}
