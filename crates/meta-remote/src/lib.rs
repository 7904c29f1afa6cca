//! The metadata engine over a database across a network: [`meta::Engine`] by any [`Database`].
//!
//! Owns what is the same for all databases: the I/O thread and its connections, the queue and the groups of commits, the search for the
//! outcome of a lost answer, the cache of records, the follower of other sessions, the limits of the log, and runs. A [`Database`] stores
//! records, the log and sessions, and decides on commits. The meaning of ops stays in `meta`.
//!
//! **Group commit.** One task commits. It takes all waiting commits that do not depend on each other ([`Group`]) into one transaction. The
//! database decides for each commit by its conditions.
//!
//! **Merges.** A database merges without decoding a record: the numbers that a merge changes are columns of their own ([`Sums`]), and
//! readers put them into it ([`Merged`]).
//!
//! **Lost answers.** The database keeps the number and the outcome of the last group of each session. After a lost answer the engine raises the
//! session's generation, so that a transaction of the lost connection can no longer be applied, and reads the outcome.
//!
//! **Lost commits.** A database may come back without its newest commits, for example after a failover to a replica that lagged. A session
//! that knows one of them drops all that it has cached, notifies its watchers, and continues from the state of the database.
//!
//! **Leases.** Sessions that share a volume have leases, which are renewed at an interval. Locks of files belong to a lease. A commit waits until
//! each strict session has applied it to its caches, or has no lease any more.
//!
//! Invariants: a group is applied at most once; with an exclusive session, no other session commits; a cached record is one that the
//! database had when all commits known here were made, or has now.

mod applied;
mod commit_task;
mod commit_trouble;
mod committer;
mod database;
mod engine;
mod error;
mod follower;
mod group;
mod lease;
mod lease_task;
mod link;
mod log;
mod mergeable;
mod row_cache;
mod run;
mod session;
mod snapshot;
mod tasks;

pub mod changed_keys;
#[cfg(feature = "conformance")]
pub mod conformance;

pub use applied::{Applied, MergedRow, Outcome};
pub use database::{Connection, Database, Listener, Reads, RunLimits, ScanRange, StagedRecords, Transaction};
pub use engine::{RemoteEngine, RemoteOptions};
pub use error::{Failure, OpenError, one_line};
pub use follower::{Changes, Position};
pub use group::Group;
pub use lease::{EXPIRY, Lease, Notice, RENEWAL};
pub use log::{LogPage, LogSize, LogState};
pub use mergeable::{Change, Merged, Sums};
pub use run::number_of;
pub use session::{LEASE_S, SILENCE_S_MAX, SessionId, SessionState, ended};
pub use tasks::{Task, TaskRunner, WaitReason};
