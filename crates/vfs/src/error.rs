//! Errors of file operations, and the errno that a program gets for each.

use meta::{EngineError, FsError};
use staging::mover::NamingError;
use std::io::ErrorKind;
use store::StoreError;
use store::names::BadName;

/// Shorthand for results of file operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons why a file operation failed. The text is for logs; programs get [`Error::errno`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The namespace refused the operation.
    #[error(transparent)]
    Namespace(#[from] FsError),
    /// The object store refused the request or did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The name maps to no valid key.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A local file failed, such as a cache file (full disk, I/O error).
    #[error("a local file failed: {0}")]
    Cache(#[from] std::io::Error),
    /// The object was changed or removed in the bucket under an open file, writes lost in a conflict, or an
    /// unresolved conflict blocks the path.
    #[error("the file and the bucket differ: {0}")]
    Stale(String),
    /// The caller's cached entry is stale; the operation may succeed after a new lookup.
    #[error("stale entry, look the name up again: {0}")]
    StaleEntry(&'static str),
    /// The volume record cannot be used; the text says why.
    #[error("the volume's record {0}")]
    Volume(String),
    /// Any other error, with its errno.
    #[error("{what}")]
    Errno {
        /// The number, from `errno.h`.
        errno: i32,
        /// Description for the log.
        what: &'static str,
    },
}

impl NamingError for Error {
    fn is_uncertain(&self) -> bool {
        matches!(self, Self::Namespace(FsError::Engine(EngineError::Uncertain(_))))
    }
}

impl Error {
    pub(crate) const fn new(errno: i32, what: &'static str) -> Self {
        Self::Errno { errno, what }
    }

    pub(crate) const NOT_FOUND: Self = Self::new(libc::ENOENT, "no such file or directory");
    pub(crate) const READ_ONLY: Self = Self::new(libc::EROFS, "the volume is mounted read-only");
    pub(crate) const BAD_HANDLE: Self =
        Self::new(libc::EBADF, "invalid handle, or not open for this operation");
    pub(crate) const IS_DIRECTORY: Self = Self::new(libc::EISDIR, "is a directory");
    pub(crate) const NOT_DIRECTORY: Self = Self::new(libc::ENOTDIR, "not a directory");
    pub(crate) const NOT_EMPTY: Self = Self::new(libc::ENOTEMPTY, "directory not empty");
    pub(crate) const EXISTS: Self = Self::new(libc::EEXIST, "the name exists already");

    /// Returns the error number for the calling program.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Namespace(error) => namespace_errno(error),
            Self::Store(error) => store_errno(error),
            Self::Name(BadName::Reserved) => libc::EINVAL,
            Self::Name(BadName::Key(_)) => libc::ENAMETOOLONG,
            Self::Cache(error) => cache_errno(error),
            Self::Stale(_) | Self::StaleEntry(_) => libc::ESTALE,
            Self::Volume(_) => libc::EIO,
            Self::Errno { errno, .. } => *errno,
        }
    }

    /// Returns whether an error is about one bucket, so that others may work: it may not be read, or is gone.
    pub(crate) fn is_of_one_bucket(&self) -> bool {
        matches!(self, Self::Store(StoreError::Denied(_) | StoreError::NoSuchBucket(_)))
    }
}

/// Returns the errno of an I/O error. An error with a path attached (as `tempfile` returns it) has no raw errno: its
/// kind decides.
fn cache_errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::StorageFull => libc::ENOSPC,
        ErrorKind::QuotaExceeded => libc::EDQUOT,
        _ => libc::EIO,
    })
}

fn namespace_errno(error: &FsError) -> i32 {
    match error {
        FsError::NotFound => libc::ENOENT,
        FsError::Exists => libc::EEXIST,
        FsError::NotDirectory => libc::ENOTDIR,
        FsError::IsDirectory => libc::EISDIR,
        FsError::NotEmpty => libc::ENOTEMPTY,
        FsError::Invalid(_) | FsError::CrossesItself => libc::EINVAL,
        FsError::NameTooLong => libc::ENAMETOOLONG,
        FsError::TooManyLinks => libc::EMLINK,
        FsError::StaleBase => libc::ESTALE,
        FsError::NoData => libc::ENODATA,
        FsError::OverQuota => libc::EDQUOT,
        FsError::VolumeFull => libc::ENOSPC,
        FsError::OtherTree => libc::EXDEV,
        FsError::Conflict => libc::EBUSY,
        FsError::Engine(EngineError::Full(_)) => libc::ENOSPC,
        _ => libc::EIO,
    }
}

fn store_errno(error: &StoreError) -> i32 {
    match error {
        StoreError::NotFound(_) => libc::ENOENT,
        StoreError::PreconditionFailed(_) => libc::ESTALE,
        StoreError::InvalidKey { .. } => libc::EILSEQ,
        StoreError::Denied(_) => libc::EACCES,
        StoreError::Full(_) => libc::ENOSPC,
        StoreError::Unsupported(_) => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }
}
