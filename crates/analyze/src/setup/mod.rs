//! Setup of the compared systems: loop devices over one file, file systems, memory limits, servers.
//!
//! Owns everything that a comparison creates on the machine, and its removal. Each resource is registered with a
//! [`CleanupProcess`](harness::CleanupProcess) before or right after it is created. That is a separate process, so devices, mounts, servers
//! and files are removed however this process ends.
//!
//! Refuses to use devices that it did not create, to run without root, and to start without enough disk space.

mod counters;
mod fio;
mod loop_device;
mod system;

pub use counters::DeviceCounters;
pub use fio::{FIO_MISSING, FioPoint, Sweep};
pub use harness::drop_caches;
pub use loop_device::{Backing, FileSystem, LoopDevice};
pub use system::{Programs, Running, System};

use std::io;
use std::path::{Path, PathBuf};

/// Reasons why a system cannot be set up. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Not running as root, which loop devices, mounts and dropping caches need.
    #[error("comparing needs root for loop devices and mounts: run it with sudo")]
    NotRoot,
    /// The disk has too little free space.
    #[error(
        "{dir} has {free_bytes} bytes free, and {needed_bytes} are needed: free some space, or choose another directory with --scratch or a smaller --device-size"
    )]
    NoSpace {
        /// Directory.
        dir: PathBuf,
        /// Free space.
        free_bytes: u64,
        /// Required space.
        needed_bytes: u64,
    },
    /// The earlier part of a comparison was measured under other conditions.
    #[error(
        "the earlier results were measured under other conditions (scale, device, memory, machine, or build of tenon): choose another file with --json"
    )]
    OtherConditions,
    /// The machine refuses something that the setup needs.
    #[error(transparent)]
    Machine(#[from] harness::Error),
}

impl SetupError {
    /// Returns the error of a file that cannot be read or written.
    pub fn file(path: &Path, source: io::Error) -> Self {
        harness::Error::File { path: path.to_owned(), source }.into()
    }
}
