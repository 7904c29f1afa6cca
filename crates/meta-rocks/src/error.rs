//! Errors of opening an engine, and the conversion of RocksDB's errors.

use meta::EngineError;
use meta::codec::DecodeError;
use rust_rocksdb::{Error, ErrorKind};
use std::io;
use std::path::PathBuf;

/// Errors of opening a directory as an engine. Every message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another engine, in this or another process, has the directory open.
    #[error("'{}' is in use by another process", .0.display())]
    InUse(PathBuf),
    /// A newer Tenon wrote the directory.
    #[error("'{}' cannot be opened: {found}", path.display())]
    Newer {
        /// The directory.
        path: PathBuf,
        /// The version found and the newest one known.
        found: DecodeError,
    },
    /// The directory or a file in it cannot be accessed.
    #[error("'{}' cannot be opened: {error}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The engine failed or is damaged.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Converts an error of opening the database. A missing database is `Corrupt`.
pub(crate) fn open_error(error: Error) -> EngineError {
    match error.kind() {
        ErrorKind::InvalidArgument => EngineError::Corrupt(one_line(&error)),
        _ => read_error(error),
    }
}

/// Converts an error of a call that changes nothing.
pub(crate) fn read_error(error: Error) -> EngineError {
    let text = one_line(&error);
    if error.kind() == ErrorKind::Corruption || text.contains("No such file or directory") {
        EngineError::Corrupt(text)
    } else {
        EngineError::Unavailable(text)
    }
}

/// Converts an error of a call that may have changed something. A write for which RocksDB's write-ahead log has no space is not
/// applied.
pub(crate) fn write_error(error: Error) -> EngineError {
    let text = one_line(&error);
    if text.contains("No space left on device") {
        EngineError::Full(text)
    } else {
        EngineError::Uncertain(text)
    }
}

/// Converts an error of resuming after the disk was full. The database still finds the disk full.
pub(crate) fn resume_error(error: Error) -> EngineError {
    EngineError::Full(one_line(&error))
}

fn one_line(error: &Error) -> String {
    error.as_ref().replace('\n', " ")
}
