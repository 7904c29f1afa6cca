//! Errors of namespace calls.

use crate::codec::DecodeError;
use crate::record::Seqno;

/// The error of a namespace call. Nothing has changed, except perhaps after [`EngineError::Uncertain`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// The name does not exist, or the inode no longer exists (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// The name already exists (EEXIST).
    #[error("the name already exists")]
    Exists,
    /// The inode must be a directory and is not (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// The inode must not be a directory and is one (EISDIR).
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries (ENOTEMPTY).
    #[error("the directory is not empty")]
    NotEmpty,
    /// An argument is invalid (EINVAL), with the reason.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// The name exceeds the maximum length (ENAMETOOLONG).
    #[error("the name is too long")]
    NameTooLong,
    /// The inode has the maximum number of names (EMLINK).
    #[error("too many links")]
    TooManyLinks,
    /// The op is based on content that is no longer current, for example on an object that has been replaced (ESTALE).
    #[error("the content has changed since it was read")]
    StaleBase,
    /// The observation of the store is not newer than the inode's last change or observation, and is ignored (EAGAIN).
    #[error("the observation of the store is outdated")]
    Late,
    /// The extended attribute does not exist (ENODATA).
    #[error("no such extended attribute")]
    NoData,
    /// The change would exceed a directory's quota (EDQUOT).
    #[error("the directory's quota would be exceeded")]
    OverQuota,
    /// The change would exceed the volume's quota (ENOSPC).
    #[error("the volume's quota would be exceeded")]
    VolumeFull,
    /// The names are in directory trees with different quotas (EXDEV).
    #[error("the names are in directories with different quotas")]
    OtherTree,
    /// A directory would become its own descendant (EINVAL).
    #[error("a directory cannot be moved into itself")]
    CrossesItself,
    /// The engine failed (EIO).
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Every attempt to commit conflicted with a concurrent change; a later attempt may succeed (EBUSY).
    #[error("too many conflicts with concurrent changes, try again")]
    Conflict,
    /// The tables are inconsistent (EIO), with the reason.
    #[error("the metadata is damaged: {0}")]
    Corrupt(String),
}

impl FsError {
    /// Returns the engine's error. Any other error means that the tables are damaged, because the caller has ruled it out.
    pub fn into_engine_error(self) -> EngineError {
        match self {
            Self::Engine(error) => error,
            error => EngineError::Corrupt(error.to_string()),
        }
    }
}

impl From<DecodeError> for FsError {
    fn from(error: DecodeError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// Errors of a metadata engine. Every message is one line and contains no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine failed or cannot be reached; nothing has changed.
    #[error("the metadata engine failed: {0}")]
    Unavailable(String),
    /// There is no space for the change; nothing has changed.
    #[error("the metadata engine is out of space: {0}")]
    Full(String),
    /// The engine failed during a commit; the commit may or may not have been applied.
    #[error("the metadata engine failed, the change may or may not have been made: {0}")]
    Uncertain(String),
    /// The engine's data is damaged.
    #[error("the metadata engine is damaged: {0}")]
    Corrupt(String),
}

impl From<DecodeError> for EngineError {
    fn from(error: DecodeError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// Errors of a commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A condition does not hold. The caller must read again and retry.
    #[error("a condition of the commit does not hold")]
    Conflict,
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Errors of reading the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The log after the cursor has been cut off. The consumer must scan the tables and then continue from `head`.
    #[error("the log no longer reaches back to the cursor")]
    Lagged {
        /// The newest commit at the time of the call.
        head: Seqno,
    },
    /// No consumer of this name is registered.
    #[error("no log consumer '{0}'")]
    NoConsumer(String),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
