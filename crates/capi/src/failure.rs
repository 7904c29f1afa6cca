//! Errors of calls: an errno, and a text for the program's user.

use cli::library::{BatchError, OpenError};

/// Shorthand for results of calls.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    pub(crate) errno: i32,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// Returns the failure for a handle that is closed, or was never returned.
    pub(crate) fn bad_handle() -> Self {
        Self::new(libc::EBADF, "the handle is not open")
    }

    /// Returns the failure with the path that the caller gave.
    pub(crate) fn at(mut self, path: &[u8]) -> Self {
        self.text = format!("{}: {}", String::from_utf8_lossy(path), self.text);
        self
    }
}

impl From<vfs::Error> for Failure {
    fn from(error: vfs::Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let errno = match error {
            OpenError::Busy(_) => libc::EBUSY,
            OpenError::Invalid(_) => libc::EINVAL,
            OpenError::Failed(_) => libc::EIO,
        };
        Self::new(errno, error.to_string())
    }
}
