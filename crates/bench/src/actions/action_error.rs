//! Errors of actions.

use crate::journal::JournalError;
use crate::outcome::Failure;
use crate::runner::RunError;
use std::io;
use std::path::{Path, PathBuf};
use store::StoreError;

/// Reasons why an action failed. Each message is one line and contains no secret.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// A platform cannot be used.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The journal of buckets cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A command of the package failed, or the testbed could not run it.
    #[error("{0}")]
    Failed(Failure),
    /// A request for a bucket failed.
    #[error("bucket '{0}': {1}")]
    Store(String, StoreError),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The target is mounted.
    #[error("{target} is mounted at {point}: run `tenon bench down {target}` first")]
    IsUp {
        /// Target.
        target: String,
        /// Mount point.
        point: String,
    },
    /// The target is not mounted.
    #[error("{0} is not mounted; `tenon bench list` shows what is")]
    IsDown(String),
    /// The mount has ended by itself.
    #[error("{0} is not mounted any more: its process has ended")]
    Died(String),
    /// Another process of the testbed runs the platform's server.
    #[error(
        "platform '{0}' is in use by a mounted target or another command: run `tenon bench down TARGET`, or wait for the command to end"
    )]
    InUse(String),
    /// The bucket was not created by the testbed.
    #[error("bucket '{0}' was not created by the testbed: give --not-mine to change it all the same")]
    NotOurs(String),
    /// The target has a bucket already.
    #[error("{0} has the bucket '{1}' already")]
    HasBucket(String, String),
    /// The target has no bucket.
    #[error(
        "{0} has no bucket on this platform: run `tenon bench create-bucket {0}`, or name one with --bucket"
    )]
    NoBucket(String),
    /// The mount did not end.
    #[error("{0} did not unmount within {1} s")]
    DownHung(String, u64),
    /// No package manager has the program.
    #[error("package '{0}' cannot be installed by the testbed: {1}")]
    NotInstallable(String, String),
    /// An installation failed.
    #[error("{command} failed: {reason}")]
    Install {
        /// Command.
        command: String,
        /// Last line of its output, or why it did not run to its end.
        reason: String,
    },
}

impl ActionError {
    /// Returns a function that converts an I/O error at a path.
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::File { path, source }
    }
}

impl From<Failure> for ActionError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
