//! What can go wrong at an object store, sorted by what a caller can do about it.

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
    /// The bucket exists already, or still holds objects.
    #[error("bucket '{bucket}': {reason}")]
    BucketState {
        /// The bucket's name.
        bucket: String,
        /// What about it refuses the call.
        reason: String,
    },
    /// The object is not (or is no longer) what the [`Precondition`](crate::Precondition) asked for.
    #[error("'{0}' was changed or created by somebody else")]
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
    #[error("the range begins beyond the end of '{0}'")]
    InvalidRange(ObjectKey),
    /// The version is locked against removal, or against the change of its lock.
    #[error("'{0}' is locked")]
    Locked(ObjectKey),
    /// Wrong credentials or no permission.
    #[error("access denied: {0}")]
    Denied(String),
    /// The store's answer is that it does not implement the call, or it ignored a condition it was given.
    #[error("the store does not implement {0}")]
    Unsupported(String),
    /// The call itself is wrong (too large, a bad part, a malformed option); repeating it does not help.
    #[error("the store refused the request: {0}")]
    Invalid(String),
    /// No space is left, or a quota is reached.
    #[error("the store is full: {0}")]
    Full(String),
    /// The store asks for fewer requests.
    #[error("the store asks to slow down: {0}")]
    Throttled(String),
    /// No connection, no answer in time, or an internal error of the store.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// The bytes are not the ones that were stored: short body, wrong checksum, nonsense in an answer.
    #[error("the store answered wrongly: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// The same error of another key, as a caller knows the object that it is about.
    pub fn about(self, key: &ObjectKey) -> Self {
        match self {
            Self::NotFound(_) => Self::NotFound(key.clone()),
            Self::PreconditionFailed(_) => Self::PreconditionFailed(key.clone()),
            Self::InvalidRange(_) => Self::InvalidRange(key.clone()),
            error => error,
        }
    }

    /// An error of a file on this machine in which a store in front of a bucket keeps what waits.
    pub(crate) fn of_log(what: &str, error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::Full(format!("the disk of {what}: {error}"))
            }
            _ => Self::Corrupt(format!("{what}: {error}")),
        }
    }

    /// Whether the same call may succeed a moment later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Throttled(_) | Self::Unavailable(_) | Self::Corrupt(_))
    }
}

impl From<InvalidKey> for StoreError {
    fn from(error: InvalidKey) -> Self {
        Self::InvalidKey { key: String::new(), reason: error.to_string() }
    }
}
