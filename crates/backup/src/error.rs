//! Errors of backups.

use meta::codec::DecodeError;
use meta::{CommitError, EngineError, FsError, LogError};
use store::{ObjectKey, StoreError, Timestamp};

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a backup, a dump or a restoration. Every text is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bucket failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The metadata engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A file failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A part of the backup is not what was written.
    #[error("'{key}' {what}")]
    Damaged {
        /// The part.
        key: ObjectKey,
        /// The defect, as a predicate.
        what: String,
    },
    /// A dump file cannot be used.
    #[error("line {line} of the dump {what}")]
    Dump {
        /// The line, from 1.
        line: u64,
        /// The defect, as a predicate.
        what: String,
    },
    /// Another state directory has taken over the lineage.
    #[error("another machine has taken over this volume (generation {number})")]
    Superseded {
        /// The generation that replaced this one.
        number: u32,
        /// When the other machine took over, by its clock.
        taken_at: Timestamp,
    },
    /// There is no complete backup to restore.
    #[error("there is no complete backup{0}")]
    NoBackup(String),
    /// Records or ops cannot be added to the engine: it is not empty, or an op violates the rules of the namespace.
    #[error("cannot fill the metadata engine: {0}")]
    Inconsistent(String),
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Engine(error) => error.into(),
            CommitError::Conflict => Self::Engine(EngineError::Unavailable("another process uses it".into())),
        }
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Engine(error) => error.into(),
            other => Self::Engine(EngineError::Unavailable(other.to_string())),
        }
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<FsError> for Error {
    fn from(error: FsError) -> Self {
        match error {
            FsError::Engine(error) => error.into(),
            other => Self::Inconsistent(other.to_string()),
        }
    }
}

/// Converts an error of a table in memory that is being written, or read after its verification.
impl From<sst::Error> for Error {
    fn from(error: sst::Error) -> Self {
        Self::Engine(EngineError::Corrupt(error.to_string()))
    }
}

impl Error {
    /// Returns the error that a part of the backup is damaged.
    pub(crate) fn damaged(key: &ObjectKey, what: impl Into<String>) -> Self {
        Self::Damaged { key: key.clone(), what: what.into() }
    }
}
