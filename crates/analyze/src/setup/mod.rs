//! The systems that are compared, each fresh on a loop device over one file: devices, file systems, servers, memory limits.
//!
//! Owns what is made on the machine for a comparison, and its end: everything is noted with an [`Undertaker`] *before*
//! or as it is made, and that is a process of its own, so that devices, mounts, servers and files go however this process ends.
//!
//! Refuses: a device that is not its own; to run without root; to begin without the space for it.

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

/// Why a system cannot be set up. One line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Loop devices, mounts and caches are root's.
    #[error("comparing needs root: it makes loop devices and mounts; run it by sudo")]
    NotRoot,
    /// Something that it runs is not installed.
    #[error("there is no program '{program}': {advice}")]
    NoProgram {
        /// Which.
        program: String,
        /// Where it is from.
        advice: &'static str,
    },
    /// The disk is too full.
    #[error(
        "{dir} has {free_bytes} bytes free, and {needed_bytes} are needed: free some, name another place with --scratch, or a smaller --device-size"
    )]
    NoSpace {
        /// Where.
        dir: PathBuf,
        /// What there is.
        free_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },
    /// A program failed.
    #[error("{program} failed: {reason}")]
    Failed {
        /// Which.
        program: String,
        /// The last line that it said.
        reason: String,
    },
    /// A server does not answer.
    #[error("{system} does not start: {reason}")]
    NotServing {
        /// Which.
        system: String,
        /// The last lines of its log.
        reason: String,
    },
    /// The earlier part of a comparison was measured otherwise.
    #[error(
        "what was measured before has other conditions (scale, device, memory, machine, or build of tenon): name another file with --json"
    )]
    OtherConditions,
    /// A file or directory could not be made or read.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// [`SetupError::File`] with its path.
fn about(path: &Path) -> impl FnOnce(io::Error) -> SetupError {
    let path = path.to_owned();
    |source| SetupError::File { path, source }
}

/// Where the packages are from that Debian has.
fn advice(program: &str) -> &'static str {
    match program {
        "mkfs.xfs" => "install xfsprogs",
        "mkfs.ext4" => "install e2fsprogs",
        "losetup" | "mount" | "umount" => "install util-linux",
        "fio" => "install fio",
        _ => "install it",
    }
}

/// Runs a program to its end; what it said.
fn run(program: &str, arguments: &[&str], input: Stdio) -> Result<Output, SetupError> {
    let output = Command::new(program).args(arguments).stdin(input).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            SetupError::NoProgram { program: program.to_owned(), advice: advice(program) }
        }
        _ => SetupError::Failed { program: program.to_owned(), reason: error.to_string() },
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
    Err(SetupError::Failed { program: program.to_owned(), reason: last.trim().to_owned() })
}

/// Forgets everything that the kernel has cached and need not keep (proc_sys_vm(5)).
///
/// # Errors
/// If this is not root.
pub fn drop_caches() -> Result<(), SetupError> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    rustix::fs::sync();
    std::fs::write(path, "3").map_err(about(path))
}
