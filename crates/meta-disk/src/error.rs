//! Errors of opening an engine, and the conversion of errors of files and sorted tables.

use meta::EngineError;
use meta::codec::DecodeError;
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
        /// The directory that was to be opened.
        path: PathBuf,
        /// The version found and the newest one known.
        found: DecodeError,
    },
    /// The directory or a file in it cannot be accessed.
    #[error("'{}' cannot be opened: {error}", path.display())]
    Io {
        /// The directory or file that cannot be accessed.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The tables are RocksDB's, and this build does not include RocksDB.
    #[error(
        "the metadata in '{}' is in RocksDB tables, and this build of tenon has no RocksDB; use a build that has it, or convert the volume: \
         `tenon dump` with that build, then `tenon load` with this one",
        .0.display()
    )]
    NoRocksDb(PathBuf),
    /// The engine failed or is damaged.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Converts an error of a sorted table. A file that is missing is damage.
pub(crate) fn table_error(error: sst::Error) -> EngineError {
    match error {
        sst::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            EngineError::Corrupt(format!("a table file is missing: {error}"))
        }
        sst::Error::Io(error) => io_error(error),
        error @ sst::Error::Corrupt { .. } => EngineError::Corrupt(error.to_string()),
        error => EngineError::Unavailable(error.to_string()),
    }
}

/// Converts an error of a call after which nothing has changed.
pub(crate) fn io_error(error: io::Error) -> EngineError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::Full(error.to_string()),
        _ => EngineError::Unavailable(error.to_string()),
    }
}
