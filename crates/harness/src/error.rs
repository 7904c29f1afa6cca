//! Errors of setting up a machine, and the program runner that reports them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Reasons why something cannot be set up on the machine. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A required program is not installed.
    #[error("program '{program}' not found: {advice}")]
    NoProgram {
        /// Name of the program.
        program: String,
        /// How to install it.
        advice: &'static str,
    },
    /// A program failed.
    #[error("{program} failed: {reason}")]
    Failed {
        /// Name of the program.
        program: String,
        /// Last line of its error output, or why it could not be run.
        reason: String,
    },
    /// A server does not start or does not respond.
    #[error("{system} does not start or does not respond: {reason}")]
    NotServing {
        /// Name of the system.
        system: String,
        /// The last lines of its log, or why its program could not be started.
        reason: String,
    },
    /// A file or directory cannot be created, read or written.
    #[error("{path}: {source}")]
    File {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// Returns a function that turns an I/O error into an [`Error::File`] with this path.
pub fn file_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    |source| Error::File { path, source }
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

/// Runs a program to completion and returns its output.
///
/// # Errors
/// [`Error::NoProgram`] if it is not installed, [`Error::Failed`] if it cannot be run for another reason or exits with an error.
pub fn run_program(program: &str, arguments: &[&str], input: Stdio) -> Result<Output, Error> {
    let output = Command::new(program).args(arguments).stdin(input).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::NoProgram { program: program.to_owned(), advice: install_advice(program) }
        }
        _ => Error::Failed { program: program.to_owned(), reason: error.to_string() },
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no error output");
    Err(Error::Failed { program: program.to_owned(), reason: last.trim().to_owned() })
}
