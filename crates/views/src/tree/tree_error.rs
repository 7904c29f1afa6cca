//! Errors of a client's directories.

use crate::ViewError;
use std::io;

/// Error of an operation on a tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// There is no entry of this path (`ENOENT`).
    #[error("there is no such file or directory in the view")]
    NotFound,
    /// There is an entry of this path already (`EEXIST`).
    #[error("the view has an entry of this name already")]
    Exists,
    /// The directory is not empty (`ENOTEMPTY`).
    #[error("the directory is not empty")]
    NotEmpty,
    /// The path leads to a file where a directory is needed (`ENOTDIR`).
    #[error("this is a file, not a directory")]
    NotDirectory,
    /// The path leads to a directory where a file is needed (`EISDIR`).
    #[error("this is a directory, not a file")]
    IsDirectory,
    /// The view could never show the result; holds the reason (`EINVAL`).
    #[error("{0}")]
    Invalid(String),
    /// Only a copy and a removal can do this (`EXDEV`).
    #[error("this cannot be renamed in one step; copy it and remove the original")]
    Elsewhere,
    /// The journal of moves cannot be written (`EIO`).
    #[error("nothing was renamed, because the journal of directory renames cannot be written: {0}")]
    State(io::Error),
    /// The views themselves are defined by the rulesets (`EPERM`).
    #[error("views cannot be made, renamed or removed here; edit the file of rulesets")]
    Fixed,
    /// The view has no content yet, because the handler has never answered or returns an error (`EIO`).
    #[error(transparent)]
    View(#[from] ViewError),
}
