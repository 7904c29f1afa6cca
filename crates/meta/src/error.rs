//! Why a namespace call did not happen.

use crate::codec::DecodeError;
use crate::engine::EngineError;

/// The error of a namespace call. Unless it is [`FsError::Engine`] with an uncertain outcome, nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// No such name, or no such inode any more (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken (EEXIST).
    #[error("the name exists")]
    Exists,
    /// A directory is needed (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// Something other than a directory is needed (EISDIR).
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries (ENOTEMPTY).
    #[error("the directory is not empty")]
    NotEmpty,
    /// The op makes no sense (EINVAL); says why.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// The name is longer than a name can be (ENAMETOOLONG).
    #[error("the name is too long")]
    NameTooLong,
    /// The inode has as many names as it can have (EMLINK).
    #[error("too many links")]
    TooManyLinks,
    /// The bytes to publish were made from an object that is no longer the current one (ESTALE).
    #[error("the object changed meanwhile")]
    StaleBase,
    /// The store was looked at before the inode was changed here: what was seen does not count (EAGAIN).
    #[error("changed after the look")]
    Late,
    /// No such extended attribute (ENODATA).
    #[error("no such extended attribute")]
    NoData,
    /// A directory's quota has no room (EDQUOT).
    #[error("the directory's quota is used up")]
    OverQuota,
    /// The volume's quota has no room (ENOSPC).
    #[error("the volume's quota is used up")]
    VolumeFull,
    /// The names would lie in trees with different quotas (EXDEV).
    #[error("another directory's quota counts there")]
    OtherTree,
    /// A directory would become its own descendant (EINVAL).
    #[error("a directory cannot move into itself")]
    CrossesItself,
    /// The engine failed (EIO).
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Others changed the same thing again and again; a later attempt may succeed (EBUSY).
    #[error("gave up after too many conflicts")]
    Conflict,
    /// The tables contradict themselves (EIO); says how.
    #[error("the metadata is damaged: {0}")]
    Corrupt(String),
}

impl From<DecodeError> for FsError {
    fn from(error: DecodeError) -> Self {
        Self::Corrupt(error.to_string())
    }
}
