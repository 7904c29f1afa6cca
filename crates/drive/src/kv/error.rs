//! What can be wrong with a call.

use store::StoreError;

/// Shorthand for results of the key-value face.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a call. Every text is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is empty or too long (`KVS_ERR_KEY_LENGTH_INVALID`).
    #[error("{0}")]
    KeyInvalid(String),
    /// There is no such key (`KVS_ERR_KEY_NOT_EXIST`).
    #[error("there is no key '{0}'")]
    KeyNotExist(String),
    /// The key is there, and was not to be replaced (`KVS_ERR_VALUE_UPDATE_NOT_ALLOWED`).
    #[error("the key '{0}' is there already")]
    KeyExists(String),
    /// The offset lies beyond the value's end (`KVS_ERR_VALUE_OFFSET_INVALID`).
    #[error("the offset {offset} lies beyond the value's end, which is at {value_bytes}")]
    OffsetInvalid {
        /// The offset that was asked for.
        offset: u64,
        /// How long the value is.
        value_bytes: u64,
    },
    /// There is such a group (`KVS_ERR_KS_EXIST`).
    #[error("the group '{0}' is there already")]
    GroupExists(String),
    /// There is no such group (`KVS_ERR_KS_NOT_EXIST`).
    #[error("there is no group '{0}'")]
    GroupNotExist(String),
    /// A batch takes more of the log than one commit may.
    #[error("the batch takes {frame_bytes} bytes of the log, and may take {frame_bytes_max}: divide it")]
    BatchTooLong {
        /// What it takes: keys, what is kept of values, and values that lie in the log.
        frame_bytes: u64,
        /// What it may take.
        frame_bytes_max: u64,
    },
    /// A key is more than once in a batch.
    #[error("the key '{0}' is more than once in the batch")]
    KeyTwice(String),
    /// A batch is for groups of this drive.
    #[error("the batch has a group of another drive")]
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
