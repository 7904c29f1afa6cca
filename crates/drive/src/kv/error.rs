//! Errors of key-value calls.

use store::StoreError;

/// Shorthand for results of key-value calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a call. Every message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is empty or too long (`KVS_ERR_KEY_LENGTH_INVALID`).
    #[error("{0}")]
    KeyInvalid(String),
    /// The key does not exist (`KVS_ERR_KEY_NOT_EXIST`).
    #[error("there is no key '{0}'")]
    KeyNotExist(String),
    /// The key exists, and replacing was not allowed (`KVS_ERR_VALUE_UPDATE_NOT_ALLOWED`).
    #[error("the key '{0}' already exists")]
    KeyExists(String),
    /// The offset lies beyond the value's end (`KVS_ERR_VALUE_OFFSET_INVALID`).
    #[error("the offset {offset} lies beyond the value's end, which is at {value_bytes}")]
    OffsetInvalid {
        /// The requested offset.
        offset: u64,
        /// The length of the value.
        value_bytes: u64,
    },
    /// The group exists already (`KVS_ERR_KS_EXIST`).
    #[error("the group '{0}' already exists")]
    GroupExists(String),
    /// The group does not exist (`KVS_ERR_KS_NOT_EXIST`).
    #[error("there is no group '{0}'")]
    GroupNotExist(String),
    /// The batch exceeds what one commit may write to the log.
    #[error(
        "the batch needs {frame_bytes} bytes of the log, at most {frame_bytes_max} are allowed: divide it"
    )]
    BatchTooLong {
        /// The log bytes of the batch: keys, records, and values that are stored in the log.
        frame_bytes: u64,
        /// The most log bytes of one commit.
        frame_bytes_max: u64,
    },
    /// A key occurs more than once in a batch.
    #[error("the key '{0}' occurs more than once in the batch")]
    KeyTwice(String),
    /// The batch names a group of another drive.
    #[error("the batch names a group of another drive")]
    AnotherDrive,
    /// The drive is full (`KVS_ERR_DEV_CAPACITY`), damaged, or failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSuchBucket(name) => Self::GroupNotExist(name),
            error => Self::Store(error),
        }
    }
}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Self {
        Self::Store(error.into())
    }
}
