//! Worlds of the whole file system: programs on a mounted volume, with failing calls, latency and crashes.
//!
//! One seed makes a volume (by path, by inode, in chunks; with or without a write-back log), one to three programs,
//! each in a directory of its own, and a number of mount sessions. A real `vfs::Filesystem` serves the programs. Its bucket is in
//! memory, with failures, lost replies, repeated requests and latency ([`fault_injector`]). Its metadata engine loses unsynced commits
//! in a crash ([`disk_engine`]). Everything runs on one thread in a runtime with paused time, so that the same seed gives the same
//! calls in the same order.
//!
//! Checked against the [`fs_model`]:
//!
//! - a read returns the written bytes; a call is refused only where POSIX refuses it, and fails only where the store did;
//! - after a failed call the old or the new state is visible, and the file system continues to work;
//! - after a crash all acknowledged data is there byte for byte, and nothing that was never written. A file has the content of some
//!   moment since its last `close` (process crash) or `fsync` (power loss). Names in volumes by inode are all from one moment;
//!   in volumes by path an incomplete rename loses none;
//! - the tables are consistent, and each object that they refer to exists.

mod bystanders;
mod disk_engine;
pub(crate) mod fault_injector;
mod files_world;
mod fs_model;
mod log_disk;
pub(crate) mod machine;
mod op;
mod oracle;
mod predict;
mod program;
mod repeating_store;
pub(crate) mod scenario;
mod value_history;
pub(crate) mod walk;

use crate::{Failure, Report, runner};

/// Runs the world of a seed.
pub fn world(seed: u64) -> Result<Report, Failure> {
    runner::run_seed::<files_world::FilesWorld>(seed)
}

/// Returns the trace of a seed's world.
pub fn trace(seed: u64) -> Vec<String> {
    runner::trace::<files_world::FilesWorld>(seed)
}
