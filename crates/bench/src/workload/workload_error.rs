//! Errors of workload files.

use super::trace::TraceError;
use std::path::PathBuf;

/// Problems of a workload.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The file is not TOML, or has a missing, unknown or invalid field.
    #[error("{}", .0.message().lines().next().unwrap_or_default())]
    Toml(#[from] toml::de::Error),
    /// A job that needs files does not name an earlier job that leaves them.
    #[error("job '{0}' must name in `reads` an earlier job that leaves files of the same kind")]
    Reads(String),
    /// A job that makes its files names another job.
    #[error("job '{0}' makes its files, so it must not have `reads`")]
    NoReads(String),
    /// Two jobs have one name.
    #[error("job '{0}' exists twice")]
    Duplicate(String),
    /// A job has no thread.
    #[error("job '{0}' needs at least one thread")]
    NoThread(String),
    /// A job that runs a program or replays a trace does not say which.
    #[error("job '{0}' needs `{1}`")]
    Missing(String, &'static str),
    /// A file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A trace is not valid.
    #[error("{path}: {source}")]
    Trace {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: TraceError,
    },
    /// No workload has this name.
    #[error("unknown workload '{0}'; give a file, or choose from {1}")]
    Unknown(String, String),
}
