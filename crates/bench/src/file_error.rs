//! Errors of writing, reading and comparing a file.

use crate::outcome::{Failure, Phase, Place};
use std::io;
use store::StoreError;

/// The reason why a file was not written or read correctly.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A block differs from its content.
    #[error("{file} has wrong bytes at {offset}")]
    WrongBytes {
        /// Path or key.
        file: String,
        /// Offset of the compared block that has the wrong bytes.
        offset: u64,
    },
    /// The file has another size.
    #[error("{file} has {found_bytes} bytes instead of {expected_bytes}")]
    WrongSize {
        /// Path or key.
        file: String,
        /// Size found.
        found_bytes: u64,
        /// Size written.
        expected_bytes: u64,
    },
    /// The file does not exist.
    #[error("{file} is missing")]
    Missing {
        /// Path or key.
        file: String,
    },
    /// An operation on a file of a mount failed.
    #[error("{file}: {source}")]
    Io {
        /// Path.
        file: String,
        /// Cause.
        source: io::Error,
    },
    /// The way to reach the files does not have the operation.
    #[error("{reason}")]
    Unsupported {
        /// Why.
        reason: String,
    },
    /// A request for an object failed.
    #[error("{file}: {source}")]
    Store {
        /// Key.
        file: String,
        /// Cause.
        source: StoreError,
    },
}

impl FileError {
    /// Returns a function that names the file of an I/O error.
    pub(crate) fn io(file: &str) -> impl Fn(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { file: file.to_owned() },
            _ => Self::Io { file: file.to_owned(), source },
        }
    }

    /// Returns a function that names the object of a store's error.
    pub(crate) fn store(file: &str) -> impl Fn(StoreError) -> Self {
        move |source| match source {
            StoreError::NotFound(_) => Self::Missing { file: file.to_owned() },
            source => Self::Store { file: file.to_owned(), source },
        }
    }

    /// Returns an error if a size differs.
    pub(crate) fn check_size(file: &str, found_bytes: u64, expected_bytes: u64) -> Result<(), Self> {
        match found_bytes == expected_bytes {
            true => Ok(()),
            false => Err(Self::WrongSize { file: file.to_owned(), found_bytes, expected_bytes }),
        }
    }

    pub(crate) fn unsupported(reason: &str) -> Self {
        Self::Unsupported { reason: reason.to_owned() }
    }

    /// Returns the failure of the cell in which the error occurred.
    pub(crate) fn into_failure(self, place: Place, phase: Phase) -> Failure {
        match self {
            Self::WrongBytes { file, offset } => Failure::WrongBytes { place, file, offset },
            Self::WrongSize { file, found_bytes, expected_bytes } => {
                Failure::WrongSize { place, file, found_bytes, expected_bytes }
            }
            Self::Unsupported { reason } => Failure::Unsupported { reason },
            Self::Missing { file } => Failure::Missing { place, file, count: 1 },
            Self::Store { file, source } => Failure::Io { file, error: source.to_string() },
            Self::Io { file, source } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::NoSpace { file },
                // The kernel's answer for a FUSE mount without a process.
                io::ErrorKind::NotConnected | io::ErrorKind::ConnectionAborted => Failure::Died { phase },
                _ => Failure::Io { file, error: source.to_string() },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_kernel_become_what_they_mean() {
        let failure = |code| {
            let error = FileError::io("f")(io::Error::from_raw_os_error(code));
            error.into_failure(Place::Mount, Phase::Job)
        };
        assert_eq!(failure(28), Failure::NoSpace { file: "f".into() });
        assert_eq!(failure(107), Failure::Died { phase: Phase::Job });
        assert_eq!(failure(2), Failure::Missing { place: Place::Mount, file: "f".into(), count: 1 });
        assert!(matches!(failure(5), Failure::Io { .. }));
    }
}
