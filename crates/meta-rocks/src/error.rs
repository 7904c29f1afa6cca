//! Errors of opening, and what RocksDB's errors mean here.

use meta::EngineError;
use meta::codec::DecodeError;
use rust_rocksdb::{Error, ErrorKind};
use std::io;
use std::path::PathBuf;

/// Why a directory could not be opened as an engine. Every text is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another engine, here or in another process, has it open.
    #[error("'{}' is in use by another process", .0.display())]
    InUse(PathBuf),
    /// A newer Tenon wrote it.
    #[error("'{}' cannot be opened: {found}", path.display())]
    Newer {
        /// The directory.
        path: PathBuf,
        /// The version found and the newest one known.
        found: DecodeError,
    },
    /// The directory or a file in it cannot be used.
    #[error("'{}' cannot be opened: {error}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The engine does not work or is damaged.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The error of opening a database that should be there.
pub(crate) fn of_open(error: Error) -> EngineError {
    match error.kind() {
        ErrorKind::InvalidArgument => EngineError::Corrupt(one_line(&error)),
        _ => of_read(error),
    }
}

/// The error of a call that changes nothing.
pub(crate) fn of_read(error: Error) -> EngineError {
    let text = one_line(&error);
    if error.kind() == ErrorKind::Corruption || text.contains("No such file or directory") {
        EngineError::Corrupt(text)
    } else {
        EngineError::Unavailable(text)
    }
}

/// The error of a call that may have changed something. What has no room in the database's log is not applied.
pub(crate) fn of_write(error: Error) -> EngineError {
    let text = one_line(&error);
    if text.contains("No space left on device") {
        EngineError::Full(text)
    } else {
        EngineError::Uncertain(text)
    }
}

/// The error of going on after the disk was full: it still is, as far as the database knows.
pub(crate) fn of_resume(error: Error) -> EngineError {
    EngineError::Full(one_line(&error))
}

fn one_line(error: &Error) -> String {
    error.as_ref().replace('\n', " ")
}
