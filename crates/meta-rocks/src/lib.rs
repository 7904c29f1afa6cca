//! The metadata engine of an embedded volume: [`meta::Engine`] on RocksDB.
//!
//! Owns a directory with a RocksDB database of one column family, whose keys are those of [`meta::schema`]; the order
//! of commits, the op log and its consumers; and when commits reach the disk. The semantics stay in `meta`.
//!
//! Refuses: to know what a record means (but for [`meta::Merge`]); to open a directory that another process has open,
//! that a newer Tenon wrote, or that has lost commits which were synced.
//!
//! **Commits** are applied one group at a time. Who commits puts the commit into a queue and waits for its turn; whoever
//! has the turn applies all that wait, each checked against the tables and what those before it in the group change.
//!
//! **Atomicity.** What a group changes (records, ops of the log, the head) is published at once: as one write batch, or,
//! for a large sorted run, as one table file that RocksDB takes in with one record of its manifest. In both cases the head
//! and the log are part of the same batch or file, so there is no state in between for a crash to find.
//!
//! **Durability.** A commit that has returned survives the death of the process: it has been written to RocksDB's log. It survives
//! the loss of power after [`sync`](meta::Engine::sync), which a thread of the engine also does every few milliseconds while
//! there is something to sync. After a loss of power the commits that are there are a prefix of all commits.
//!
//! **Journal.** With a [`Journal`] RocksDB's own log is off: what is published is a record of the journal first, and tables reach the
//! disk only in a checkpoint, after the records that made them. Then whoever keeps the journal decides what is on the
//! disk before what.
//!
//! Invariants: `synced <= head`, also across a crash; the record of the head is as new as every other record; log records
//! up to the cut may be gone at any time and are never read.

mod applier;
mod engine;
mod engine_dir;
mod error;
mod group;
mod journal;
mod open_databases;
mod options;
mod row;
mod snapshot;
mod sync;
mod tables;

pub use engine::{DumpedRecords, RocksEngine};
pub use error::OpenError;
pub use journal::{Journal, Records};
pub use open_databases::all_are_closed_within;
pub use options::RocksOptions;
