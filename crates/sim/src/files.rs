//! Worlds of the whole file system: programs over a mounted volume, whose calls fail, take time and are lost in crashes.
//!
//! One seed makes a volume (by path, by inode, in chunks; with a write-back log or without), one to three programs,
//! each in a directory of its own, and some mounts one after the other. A real `vfs::Filesystem` serves them over a
//! bucket in memory ([`weather`]: failures, lost replies, repeated requests, latency) and a metadata engine that
//! loses what was not synced ([`disk`]). Everything runs on one thread in a runtime whose time is paused, so the
//! same seed gives the same calls in the same order.
//!
//! What is checked, against the [`model`]:
//!
//! - every read is what was written; a refused call is one that POSIX refuses; a call fails only where the store did;
//! - after a failure what is seen is what was or what was to be, and the file system goes on working;
//! - after a crash everything acknowledged is there byte for byte, and nothing that nobody wrote: a file is what it
//!   was at some moment since its last `close` (process) or `fsync` (power), names named by inode are all as they
//!   were at one moment, and of those named by path none is lost by a rename half-way;
//! - the tables are sound, and every object that they name is there.

mod disk_engine;
pub(crate) mod fault_injector;
mod files_world;
mod fs_model;
pub(crate) mod machine;
mod op;
mod oracle;
mod predict;
mod program;
mod repeating_store;
pub(crate) mod scenario;
mod value_history;
mod walk;

use crate::{Failure, Report, runner};

/// Lives through the world of a seed.
pub fn world(seed: u64) -> Result<Report, Failure> {
    runner::run_seed::<files_world::FilesWorld>(seed)
}

/// Everything that happens in the world of a seed, line by line.
pub fn trace(seed: u64) -> Vec<String> {
    runner::trace::<files_world::FilesWorld>(seed)
}
