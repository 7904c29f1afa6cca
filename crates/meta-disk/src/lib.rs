//! The persistent metadata engine: [`meta::Engine`] in files of a directory.
//!
//! Owns a directory with the rows of the engine, whose keys are those of [`meta::schema`]; the order of commits; the op log and its
//! consumers; and when commits become durable. The meaning of ops stays in `meta`.
//!
//! The rows are in one of two table layers: RocksDB, or an LSM tree of sorted tables in pure Rust (crate `sst`). The engine above them is the
//! same.
//!
//! Does not interpret records, except to apply a [`meta::Merge`]. Refuses to open a directory that another process has open, that a
//! newer Tenon wrote, or that has lost synced commits.
//!
//! **Group commit.** A caller puts its commit into a queue and takes the commit lock. The holder of the lock applies all queued
//! commits as a group. Each commit is checked against the tables and the changes of the commits before it in the group.
//!
//! **Atomicity.** All changes of a group (records, ops in the log, the head) are published at once: in one write, or,
//! for a large sorted run, in table files that one record of the layer's manifest adds. The head and the log are part
//! of the same write or of one of the files, so a crash never leaves an intermediate state. The table files of a large
//! run are written before, outside of the commit lock.
//!
//! **Durability.** A completed commit survives a crash of the process, because it is in the layer's write-ahead log. It survives a loss
//! of power after [`sync`](meta::Engine::sync), which a thread of the engine also calls every few milliseconds while there are unsynced
//! commits. After a loss of power the remaining commits are a prefix of all commits.
//!
//! **Journal.** With a [`Journal`], the layer's own write-ahead log is off. Each publication is first appended to the journal, and table
//! files are written only in a checkpoint, after the journal records with their changes are durable. So the implementation of the
//! journal decides in which order metadata and other data become durable.
//!
//! Invariants: `synced <= head`, also after a crash; the head record is as new as every other record; log records up to the cut may
//! be removed at any time and are never read.

mod applier;
mod engine;
mod engine_dir;
mod error;
mod group;
mod journal;
mod layer;
mod open_databases;
mod options;
mod records;
mod row;
mod run;
mod snapshot;
mod stored_format;
mod sync;
mod tables;

pub use engine::{DiskEngine, DumpedRecords};
pub use error::OpenError;
pub use journal::{Journal, Records};
pub use open_databases::all_are_closed_within;
pub use options::{EngineOptions, TableLayer};
pub use stored_format::StoredFormat;
