//! Errors of object stores, sorted by what a caller can do about them.

use crate::key::{InvalidKey, ObjectKey};

/// Shorthand for results of store calls.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// An error of an [`ObjectStore`](crate::ObjectStore). Every text is one line and holds no secret.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No object has this key.
    #[error("no object '{0}'")]
    NotFound(ObjectKey),
    /// The bucket does not exist.
    #[error("no bucket '{0}': create it first, or check its name")]
    NoSuchBucket(String),
    /// The bucket exists already, or is not empty.
    #[error("bucket '{bucket}': {reason}")]
    BucketState {
        /// The bucket's name.
        bucket: String,
        /// The reason for which the call was refused.
        reason: String,
    },
    /// The object at the key does not meet the [`Precondition`](crate::Precondition), or no longer does.
    #[error(
        "'{0}' does not meet the condition of the request: another client may have created, changed or deleted it"
    )]
    PreconditionFailed(ObjectKey),
    /// The store cannot hold this key.
    #[error("the store cannot hold the key '{key}': {reason}")]
    InvalidKey {
        /// The key refused.
        key: String,
        /// The store's reason.
        reason: String,
    },
    /// The range asked for begins at or beyond the object's end.
    #[error("the range begins at or beyond the end of '{0}'")]
    InvalidRange(ObjectKey),
    /// An object lock forbids removing the version or weakening its lock.
    #[error("an object lock protects '{0}'")]
    Locked(ObjectKey),
    /// Wrong credentials or no permission.
    #[error("access denied: {0}")]
    Denied(String),
    /// The store does not implement the call, or it ignored a condition.
    #[error("the store does not implement {0}")]
    Unsupported(String),
    /// The call itself is wrong (too large, a bad part, a malformed option); repeating the call does not help.
    #[error("the store refused the request: {0}")]
    Invalid(String),
    /// No space is left, or a quota is reached.
    #[error("the store is full: {0}")]
    Full(String),
    /// The store asks for fewer requests, or has no memory for more of them.
    #[error("the store asks to slow down: {0}")]
    Throttled(String),
    /// No connection, no answer in time, or an internal error of the store.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The response or the stored data is damaged: a short body, a wrong checksum or malformed content.
    #[error("the store's response is damaged or invalid: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Replaces the key in a `NotFound`, `PreconditionFailed` or `InvalidRange` by the key that the caller knows.
    /// Other errors are returned unchanged.
    pub fn about(self, key: &ObjectKey) -> Self {
        match self {
            Self::NotFound(_) => Self::NotFound(key.clone()),
            Self::PreconditionFailed(_) => Self::PreconditionFailed(key.clone()),
            Self::InvalidRange(_) => Self::InvalidRange(key.clone()),
            error => error,
        }
    }

    /// Converts an I/O error of a local log, in which a store keeps changes that its bucket does not have yet: a full
    /// disk is `Full`, any other error `Corrupt`.
    pub fn of_log(what: &str, error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::Full(format!("the disk of {what}: {error}"))
            }
            _ => Self::Corrupt(format!("{what}: {error}")),
        }
    }

    /// Returns whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Throttled(_) | Self::Unavailable(_) | Self::Corrupt(_))
    }
}

impl From<InvalidKey> for StoreError {
    fn from(error: InvalidKey) -> Self {
        Self::InvalidKey { key: String::new(), reason: error.to_string() }
    }
}
