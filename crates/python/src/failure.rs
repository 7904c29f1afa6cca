//! Errors of operations as Python's `OSError`, of which Python chooses the subclass by the errno.

use pyo3::PyErr;
use pyo3::exceptions::PyOSError;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use store::StoreError;

/// Shorthand for results of operations.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// An operation that failed: its errno, what happened, and the path.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    errno: i32,
    text: String,
    path: Option<Vec<u8>>,
}

impl Failure {
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Self {
        Self { errno, text: text.into(), path: None }
    }

    pub(crate) fn errno(&self) -> i32 {
        self.errno
    }

    /// Returns the failure with the path that the caller gave.
    pub(crate) fn at(mut self, path: &[u8]) -> Self {
        self.path.get_or_insert_with(|| path.to_owned());
        self
    }
}

impl From<vfs::Error> for Failure {
    fn from(error: vfs::Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        vfs::Error::from(error).into()
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(libc::EIO), error.to_string())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure.path {
            Some(path) => PyOSError::new_err((failure.errno, failure.text, OsString::from_vec(path))),
            None => PyOSError::new_err((failure.errno, failure.text)),
        }
    }
}

/// The outcome of one of many operations: the value, or the exception as a value.
#[derive(Debug)]
pub(crate) struct Outcome<T>(pub(crate) Result<T>);
