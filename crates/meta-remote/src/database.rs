//! The interface of a database: what stores the records of a volume, its log and its sessions.
//!
//! Every implementation is tested by the [`conformance`](crate::conformance) suite.
//!
//! Commits have one order: a number is visible only after all lower ones, and a reader of the log skips nothing.

use crate::applied::Applied;
use crate::error::{Failure, OpenError};
use crate::follower::{Changes, Position};
use crate::group::Group;
use crate::lease::{Lease, Notice};
use crate::log::{LogPage, LogState};
use crate::mergeable::Sums;
use crate::session::{SessionId, SessionState};
use meta::{
    DentryWithInode, KeyRange, LockChange, LogCap, LoggedRun, Rows, RunRecord, Seqno, StoredLocks, Value,
    Versioned,
};
use std::future::Future;
use std::ops::Bound;
use std::sync::Arc;

/// Reads of records, each from one state. Records contain what was merged into them.
pub trait Reads: Send + Sync + 'static {
    /// Returns the record of a key; `None` if there is none.
    fn get(&self, key: &[u8]) -> impl Future<Output = Result<Option<Versioned>, Failure>> + Send;

    /// Returns the records of several keys, in the order of the keys; `None` for a key without a record.
    fn multi_get(
        &self,
        keys: &[Vec<u8>],
    ) -> impl Future<Output = Result<Vec<Option<Versioned>>, Failure>> + Send;

    /// Returns the record of a dentry and that of its inode. The inode may be `None` if it was not found by way of the dentry.
    fn get_dentry(&self, key: &[u8])
    -> impl Future<Output = Result<Option<DentryWithInode>, Failure>> + Send;

    /// Returns the first `limit` records of a range, ascending.
    fn scan(&self, range: &ScanRange, limit: usize) -> impl Future<Output = Result<Rows, Failure>> + Send;

    /// Returns the last record of a range; `None` if the range is empty.
    fn last(
        &self,
        range: &KeyRange,
    ) -> impl Future<Output = Result<Option<(Vec<u8>, Versioned)>, Failure>> + Send;
}

/// A database with the metadata of one volume.
pub trait Database: Send + Sync + 'static {
    /// A connection.
    type Connection: Connection;
    /// A view that no later commit changes. Dropping it ends it.
    type Snapshot: Reads;

    /// The name of the product, for messages.
    const NAME: &'static str;
    /// The limits of runs. Other commits wait while a run is added.
    const RUN_LIMITS: RunLimits;

    /// Returns the name of the volume's part of the database, for messages.
    fn place(&self) -> String;

    /// The version of the tables or keys that this Tenon makes, and the newest that it knows. It brings those of earlier versions to this one.
    const VERSION: i32;

    /// Returns the version of the volume's tables or keys; `None` if there are none. Changes nothing.
    fn stored_version(&self) -> impl Future<Output = Result<Option<i32>, OpenError>> + Send;

    /// Makes the tables or keys of a new volume. Fails with [`OpenError::Exists`] if there are some already.
    fn create(&self) -> impl Future<Output = Result<(), OpenError>> + Send;

    /// Removes the tables or keys of the volume, if there are any.
    fn remove(&self) -> impl Future<Output = Result<(), OpenError>> + Send;

    /// Connects, for reads.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, OpenError>> + Send;

    /// Connects, migrates tables of an earlier version, and begins a session. `holder` describes this process; its earlier sessions end at
    /// once. An exclusive session ends all others. Fails with [`OpenError::InUse`] while a session that excludes this one may be alive.
    /// The connection can commit.
    fn begin_session(
        &self,
        holder: &str,
        is_exclusive: bool,
    ) -> impl Future<Output = Result<(Self::Connection, SessionId), OpenError>> + Send;

    /// Connects, for commits of a session.
    fn connect_committing(
        &self,
        session: SessionId,
        is_exclusive: bool,
    ) -> impl Future<Output = Result<Self::Connection, OpenError>> + Send;

    /// Connects, for following other sessions than `own`. Passes their notifications to `listener`, and [`Notice::Commit`] when the connection
    /// ends; returns false if the database has no notifications.
    fn connect_listening(
        &self,
        own: SessionId,
        listener: Listener,
    ) -> impl Future<Output = Result<(Self::Connection, bool), OpenError>> + Send;

    /// Begins a view of the present state, and returns the newest commit that it contains.
    fn snapshot(
        &self,
        session: SessionId,
    ) -> impl Future<Output = Result<(Self::Snapshot, Seqno), Failure>> + Send;
}

/// A function that takes notifications of other sessions.
pub type Listener = Arc<dyn Fn(Notice) + Send + Sync>;

/// A connection to a database.
pub trait Connection: Reads {
    /// Returns false if the connection is known to be lost.
    fn is_open(&self) -> bool;

    /// Applies a transaction as the group `number` of a session, in one round trip. Applies nothing, and fails, unless the generation is that
    /// of the session, the number is the next one, and no other session has exclusive access. Fails with [`Failure::Merge`] and applies
    /// nothing if a merge is impossible.
    fn apply(
        &self,
        transaction: &Transaction,
        session: SessionId,
        generation: i64,
        number: i64,
    ) -> impl Future<Output = Result<Applied, Failure>> + Send;

    /// Resumes a session on this connection: raises its generation above the stored one and `known_generation`, and returns its state. Fails
    /// for good if another process has ended the session.
    fn resume(
        &self,
        session: SessionId,
        known_generation: i64,
    ) -> impl Future<Output = Result<SessionState, Failure>> + Send;

    /// Notes that a session is alive now.
    fn show_alive(&self, session: SessionId) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Ends a session. Another process can then open the volume at once.
    fn end_session(&self, session: SessionId) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Returns whether no other session has shown a sign of life within [`SILENCE_S_MAX`](crate::SILENCE_S_MAX) seconds.
    fn is_alone(&self, session: SessionId) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Stores the lease of a session that has none, or in place of one with an earlier epoch, in the order of commits. Fails for good if the
    /// session has ended. Returns the newest commit.
    fn begin_lease(&self, lease: &Lease) -> impl Future<Output = Result<Seqno, Failure>> + Send;

    /// Renews a lease, unless its fence is below the stored one. With `notifies`, notifies other sessions of how far this one has followed. Returns all
    /// leases; `None` if there is no such lease any more, or if its stored beat is below `answered`: the database has lost changes of it, or of
    /// its locks.
    fn renew_lease(
        &self,
        lease: &Lease,
        answered: i64,
        notifies: bool,
    ) -> impl Future<Output = Result<Option<Vec<Lease>>, Failure>> + Send;

    /// Removes a lease, unless it has been renewed since.
    fn expire_lease(&self, lease: &Lease) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Returns the locks of a file.
    fn locks_of(&self, ino: u64) -> impl Future<Output = Result<StoredLocks, Failure>> + Send;

    /// Replaces the locks of a file if they are those that the caller has seen. Returns whether they were, and the locks that are stored
    /// then; `None`, without a change, unless the lease is stored with this epoch and this fence. Raises the stored beat to the lease's.
    fn replace_locks(
        &self,
        lease: &Lease,
        change: LockChange<'_>,
    ) -> impl Future<Output = Result<Option<(bool, StoredLocks)>, Failure>> + Send;

    /// Returns commits of other sessions after a position, at most `limit`; a page may have fewer although there are more.
    fn changes_after(
        &self,
        after: Position,
        session: SessionId,
        limit: i64,
    ) -> impl Future<Output = Result<Changes, Failure>> + Send;

    /// Returns the state of the log and a page of its ops after a cursor.
    fn read_log(
        &self,
        cursor: Seqno,
        limit: usize,
    ) -> impl Future<Output = Result<(LogState, LogPage), Failure>> + Send;

    /// Removes up to `commits_max` of the oldest commits from the log, as far as its limits want it. Only one call at a time is made.
    fn trim(&self, cap: &LogCap, commits_max: i64) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Registers a consumer of the log at a cursor, at most at the head. Returns false, and registers nothing, if the log does not reach
    /// back to it.
    fn register(&self, consumer: &str, at: Seqno) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Returns the state of the log, and the cursor of a consumer; `None` if it is not registered.
    fn cursor(
        &self,
        consumer: &str,
    ) -> impl Future<Output = Result<(LogState, Option<Seqno>), Failure>> + Send;

    /// Moves a consumer's cursor forward, at most to the head. Returns whether there is such a consumer.
    fn advance(&self, consumer: &str, to: Seqno) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Removes a consumer.
    fn forget_consumer(&self, consumer: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Raises the head by one, and returns it as the version of a run.
    fn reserve(&self) -> impl Future<Output = Result<Seqno, Failure>> + Send;

    /// Stages records of a run. Staging them again changes nothing.
    fn stage_records(
        &self,
        version: Seqno,
        records: &StagedRecords,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Stages a page of a run's ops. Staging it again changes nothing.
    fn stage_page(
        &self,
        version: Seqno,
        number: u32,
        page: &[u8],
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Removes a run that was not added.
    fn drop_run(&self, version: Seqno) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Commits that a database decides on and applies together.
#[derive(Debug)]
pub enum Transaction {
    /// Commits that are independent of each other.
    Group(Group),
    /// The commit that adds a staged run.
    Run(LoggedRun, RunRecord),
}

/// Maximum size of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunLimits {
    /// Maximum records.
    pub records: u64,
    /// Maximum bytes of records and ops.
    pub bytes: u64,
}

/// Records of a run, in ascending order of their keys. A record without a value is a removal.
#[derive(Debug, Default)]
pub struct StagedRecords {
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// The values.
    pub values: Vec<Option<Value>>,
    /// The sums of the values.
    pub sums: Vec<Sums>,
}

/// A range of keys: from `from`, inclusive, to `to`, exclusive. Without `to` it has no end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRange {
    /// The first key.
    pub from: Vec<u8>,
    /// The first key after the range.
    pub to: Option<Vec<u8>>,
}

impl ScanRange {
    /// Converts bounds of any kind.
    pub fn new(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Self {
        let from = match from {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => successor(key),
            Bound::Unbounded => Vec::new(),
        };
        let to = match to {
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        Self { from, to }
    }
}

/// Returns the key that directly follows a key.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
