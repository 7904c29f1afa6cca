//! Batches: private namespaces whose changes one commit adds to a volume, after they were verified.
//!
//! A job begins a [`PrivateNamespace`] over a snapshot of the volume. Its ops go to a local map and a log on the local disk, and to no
//! server. [`PrivateNamespace::seal`] makes the batch a directory of three files: the ops, the rows that they change, and the versions of
//! the records on which they depend. [`merge`] verifies a sealed batch against the present state of the volume and adds it as one
//! [run](meta::Run).
//!
//! Another server can verify a batch ([`write_verdict`]), whose verdict the volume's server then adds ([`merge_verdict`]).
//!
//! [`PrivateNamespace::into_engine`] makes the namespace an engine, for a file system over it.
//!
//! Owns the map, the local log, the counters of a job's [`Progress`], sealed batches, verification, merge, and the rescue of refused ops. Does
//! not know how a batch reaches a server, and does not implement the meaning of ops: a private namespace and a verifier are both
//! [`meta::namespace::apply`] over an `Overlay`.
//!
//! Invariants:
//! - what a merge adds to a volume is the effect of `apply` on ops that `meta::access` permits to the batch's user, and on those by which refused
//!   files keep their bytes, in the order of the log;
//! - each op is added, or is in the list of refused ops, or creates a directory that already exists with the same owner, group and mode;
//! - nothing that a sealed batch says about itself is believed: user, lease and times come from the server ([`Terms`]).

mod base;
mod begin;
mod bulk_txn;
mod canonical;
mod change;
mod inode_rows;
mod local_map;
mod merge;
mod op_log;
mod overlay;
mod private_engine;
mod private_namespace;
mod progress;
mod proof;
mod reduced;
mod rescue;
mod run_rows;
mod sealed;
mod table_error;
mod verdict;
mod verdict_error;
mod verify;

pub use begin::{LEASE_INOS, begin};
pub use merge::{MergeError, MergeStep, Merged, merge, merge_in_steps};
pub use op_log::{LogDamage, VERSIONS, log_path, stored_version};
pub use private_engine::PrivateEngine;
pub use private_namespace::{JobError, JobOptions, PrivateNamespace};
pub use progress::{DirectoryCounts, Progress, Totals};
pub use proof::Proof;
pub use rescue::kept_suffix;
pub use sealed::{SEALED_FILES, SealedBatch};
pub use verdict::{VERDICT_FILE, VERDICT_ROWS_FILE, merge_verdict, write_verdict};
pub use verdict_error::VerdictError;
pub use verify::{Refusal, Refused, Rejected, Terms};
