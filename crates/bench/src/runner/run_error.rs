//! Errors of a run.

use crate::journal::JournalError;
use crate::platform::PlatformError;
use crate::results::ResultsError;
use store::StoreError;
use store_s3::ConfigError;

/// Reasons why a run cannot go on. Failures of a package are outcomes instead.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// MinIO is not installed.
    #[error("program 'minio' not found: install it, or give its path with --minio")]
    NoMinio,
    /// The machine refuses something.
    #[error(transparent)]
    Machine(#[from] harness::Error),
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The endpoint cannot be used.
    #[error(transparent)]
    Endpoint(#[from] ConfigError),
    /// The results cannot be read or written.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The journal of buckets cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The platform of a journaled bucket is not known any more.
    #[error("a bucket of an earlier run is left: {0}")]
    Platform(#[from] PlatformError),
    /// A bucket could not be removed.
    #[error("bucket '{0}' could not be removed: {1}; `tenon bench clean-all` tries again")]
    LeftBucket(String, StoreError),
    /// The signing proxy does not start.
    #[error(transparent)]
    Listen(#[from] listen::ListenError),
    /// The threads that make the testbed's own requests cannot be started.
    #[error("cannot start threads ({0}); check the limit on processes (`ulimit -u`)")]
    Runtime(std::io::Error),
    /// The run was stopped.
    #[error("stopped; the same command continues the run")]
    Stopped,
}
