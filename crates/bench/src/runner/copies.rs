//! Files that are copied by `cp`, as the paper's program does: from a local directory into the mount, and back.
//!
//! Sources are made before the job, and what was read is compared after it, so that only `cp` is measured.

use super::file_tasks::{read, write};
use crate::file_error::FileError;
use crate::workload::{JobFile, Task};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The local side of a job's copies. Dropping it removes the files.
#[derive(Debug)]
pub(super) struct Copies {
    dir: PathBuf,
    read_files: Vec<JobFile>,
}

impl Copies {
    /// Makes the sources of all files that the tasks write, in a directory of this name. The name must be new: threads that were given up
    /// may use an earlier one.
    pub(super) fn prepare(scratch: &Path, name: &str, shares: &[Vec<Task>]) -> Result<Self, FileError> {
        let dir = scratch.join(format!("copies-{name}"));
        std::fs::create_dir_all(&dir).map_err(FileError::io("copies"))?;
        let read_files = shares.iter().flatten().filter_map(|task| match task {
            Task::Read(file) => Some(file.clone()),
            _ => None,
        });
        let copies = Self { dir, read_files: read_files.collect() };
        for task in shares.iter().flatten() {
            if let Task::Write(file) = task {
                write(&copies.local(file), file)?;
            }
        }
        Ok(copies)
    }

    /// Returns the path of the local copy of a file.
    fn local(&self, file: &JobFile) -> PathBuf {
        self.dir.join(file.path.replace('/', "-"))
    }

    /// Copies a file into the mount.
    pub(super) fn copy_in(&self, root: &Path, file: &JobFile) -> Result<(), FileError> {
        copy(&self.local(file), &root.join(&file.path), file)
    }

    /// Copies a file out of the mount.
    pub(super) fn copy_out(&self, root: &Path, file: &JobFile) -> Result<(), FileError> {
        copy(&root.join(&file.path), &self.local(file), file)
    }

    /// Compares every byte that was copied out.
    pub(super) fn compare(&self) -> Result<(), FileError> {
        self.read_files.iter().try_for_each(|file| read(&self.local(file), file))
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // The run's directory, of which this is a part, is removed by the cleanup process.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Copies a file with the program `cp`.
fn copy(from: &Path, to: &Path, file: &JobFile) -> Result<(), FileError> {
    let failed = FileError::io(&file.path);
    let output =
        Command::new("cp").env("LC_ALL", "C").arg("--").arg(from).arg(to).output().map_err(&failed)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.lines().last().unwrap_or("cp failed");
    Err(failed(io::Error::new(kind_of_message(text), text.to_owned())))
}

/// Returns the kind of the error in a message of `cp`, which prints the kernel's texts (strerror(3)).
fn kind_of_message(text: &str) -> io::ErrorKind {
    let kinds = [
        ("No such file or directory", io::ErrorKind::NotFound),
        ("No space left on device", io::ErrorKind::StorageFull),
        ("Transport endpoint is not connected", io::ErrorKind::NotConnected),
        ("Software caused connection abort", io::ErrorKind::ConnectionAborted),
    ];
    kinds.iter().find(|(end, _)| text.ends_with(end)).map_or(io::ErrorKind::Other, |(_, kind)| *kind)
}
