//! Worlds of one namespace with three kinds of concurrent writers on the same few keys: a client of the file system, clients of the
//! endpoint, and a foreign writer that changes the bucket directly.
//!
//! The machine, the fault injector and the crashes are those of [`crate::files`]. A session consists of rounds. In each round all
//! writers work at the same time, calls fail or are slow, and the machine may crash. Then all writers stop, faults are paused, and all
//! views of the namespace are compared. The foreign writer's changes are reported as hints (`Filesystem::reconcile`), which are lost, late,
//! repeated and out of order.
//!
//! Checked against the [`key_history`]:
//!
//! - a read of a file or an object returns the complete result of one change, no older than promised;
//! - a kernel that caches names and attributes without an end, and drops only what it is told, has no stale ones ([`kernel_cache`]);
//! - an error has a reason: a failed call of the store, or another writer's change;
//! - at most one of several mutually exclusive conditional changes succeeds;
//! - when all writers have stopped, the endpoint, a walk through the files and the bucket show the same objects, byte for byte; each key
//!   has the content of a change that no later change replaced; content that lost a conflict to the bucket is in `lost+found`;
//!   the tables are consistent, and a new mount without metadata shows the same.

mod conditional_writes;
mod dual_world;
mod endpoint_client;
mod file_client;
mod foreign_writer;
mod kernel_cache;
mod key_history;
mod open_file;
mod quiescent_check;
mod shared_state;

use crate::{Failure, Report, runner};

/// Runs the world of a seed.
pub fn world(seed: u64) -> Result<Report, Failure> {
    runner::run_seed::<dual_world::DualWorld>(seed)
}

/// Returns the trace of a seed's world.
pub fn trace(seed: u64) -> Vec<String> {
    runner::trace::<dual_world::DualWorld>(seed)
}
