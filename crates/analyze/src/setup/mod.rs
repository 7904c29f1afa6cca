//! Setup of the compared systems: loop devices over one file, file systems, memory limits, servers.
//!
//! Owns everything that a comparison creates on the machine, and its removal. Each resource is registered with a [`CleanupProcess`] before or
//! right after it is created. That is a separate process, so devices, mounts, servers and files are removed however this process ends.
//!
//! Refuses to use devices that it did not create, to run without root, and to start without enough disk space.

mod cleanup;
mod counters;
mod fio;
mod loop_device;
mod memory_limit;
mod server;
mod system;

pub use counters::DeviceCounters;
pub use fio::{FIO_MISSING, FioPoint, Sweep};
pub use loop_device::{Backing, FileSystem, LoopDevice};
pub use memory_limit::MemoryLimit;
pub use system::{Programs, Running, System};

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Reasons why a system cannot be set up. Each message is one line and tells what to do.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Not running as root, which loop devices, mounts and dropping caches need.
    #[error("comparing needs root for loop devices and mounts: run it with sudo")]
    NotRoot,
    /// A required program is not installed.
    #[error("program '{program}' not found: {advice}")]
    NoProgram {
        /// Name of the program.
        program: String,
        /// How to install it.
        advice: &'static str,
    },
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
    /// A program failed.
    #[error("{program} failed: {reason}")]
    Failed {
        /// Name of the program.
        program: String,
        /// Last line of its error output.
        reason: String,
    },
    /// A server does not start or does not respond.
    #[error("{system} does not start: {reason}")]
    NotServing {
        /// Name of the system.
        system: String,
        /// The last lines of its log.
        reason: String,
    },
    /// The earlier part of a comparison was measured under other conditions.
    #[error(
        "the earlier results were measured under other conditions (scale, device, memory, machine, or build of tenon): choose another file with --json"
    )]
    OtherConditions,
    /// A file or directory cannot be created or read.
    #[error("{path}: {source}")]
    File {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// Returns a function that turns an I/O error into a [`SetupError::File`] with this path.
fn file_error(path: &Path) -> impl FnOnce(io::Error) -> SetupError {
    let path = path.to_owned();
    |source| SetupError::File { path, source }
}

/// Returns how to install a program; the packages are Debian's.
fn install_advice(program: &str) -> &'static str {
    match program {
        "mkfs.xfs" => "install xfsprogs",
        "mkfs.ext4" => "install e2fsprogs",
        "losetup" | "mount" | "umount" => "install util-linux",
        "fio" => "install fio",
        _ => "install it",
    }
}

/// Runs a program to completion and returns its output. Fails if it exits with an error.
fn run(program: &str, arguments: &[&str], input: Stdio) -> Result<Output, SetupError> {
    let output = Command::new(program).args(arguments).stdin(input).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            SetupError::NoProgram { program: program.to_owned(), advice: install_advice(program) }
        }
        _ => SetupError::Failed { program: program.to_owned(), reason: error.to_string() },
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no error output");
    Err(SetupError::Failed { program: program.to_owned(), reason: last.trim().to_owned() })
}

/// Writes dirty data back, then drops the kernel's page, dentry and inode caches (proc_sys_vm(5)).
///
/// # Errors
/// If the process is not root.
pub fn drop_caches() -> Result<(), SetupError> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    rustix::fs::sync();
    std::fs::write(path, "3").map_err(file_error(path))
}
