//! Objects of a volume named by inode: a key is a path of names, and everything but content is in the namespace.
//!
//! Invariants: an object's content is stored before one commit creates the object, its description and its name, so that no
//! reader sees a part of it; a name in the mount and the key of the same path lead to the same inode or to none.

mod copy;
mod delete;
mod keys;
mod list;
pub(super) mod multipart;
mod naming;
mod object_store;
pub(super) mod plan;
pub(super) mod put;
pub(super) mod read;
mod rename;
mod tags;

use meta::{Applied, FsError, OpContext, Origin};
use std::sync::Arc;
use store::{ObjectKey, StoreError};

use crate::Filesystem;
use crate::objects::errors::namespace_error_about;
use crate::objects::named::keys::NamedKeys;
use crate::objects::named::plan::Change;
use crate::objects::served_directory::ServedDirectory;

/// Attempts of a change that keeps conflicting with other changes of the same names.
pub(super) const ATTEMPTS_MAX: usize = 100;

/// The objects below a directory.
#[derive(Debug, Clone)]
pub(crate) struct NamedObjects {
    pub(in crate::objects) fs: Arc<Filesystem>,
    pub(in crate::objects) directory: ServedDirectory,
    keys: NamedKeys,
}

impl NamedObjects {
    fn below(directory: &ServedDirectory) -> Self {
        let (fs, directory) = (directory.fs.clone(), directory.clone());
        let keys = NamedKeys { fs: fs.clone(), directory: directory.clone() };
        Self { fs, directory, keys }
    }

    /// Commits a change at a time that was read when it was planned.
    fn commit_at(&self, context: &OpContext, change: &Change) -> Result<Vec<Applied>, FsError> {
        self.fs.names.commit_together_if(context, &change.names, &change.ops)
    }

    fn commit(&self, change: &Change) -> Result<Vec<Applied>, FsError> {
        self.commit_at(&self.fs.mount.context(Origin::Other), change)
    }
}

/// Returns the outcome of a commit about a key; `None` if the names changed meanwhile, so that the operation is to be retried.
fn unless_raced<T>(key: &ObjectKey, outcome: Result<T, FsError>) -> store::Result<Option<T>> {
    match outcome {
        Ok(applied) => Ok(Some(applied)),
        Err(error) if is_race(&error) => Ok(None),
        Err(error) => Err(namespace_error_about(key)(error)),
    }
}

/// Returns the error of a change that conflicted with others in every attempt.
pub(super) fn too_many_races() -> StoreError {
    StoreError::Unavailable("too many concurrent changes of the same names; try again".to_owned())
}

/// Returns whether an error comes from a concurrent change of the names, so that the operation is to be retried.
pub(super) fn is_race(error: &FsError) -> bool {
    matches!(
        error,
        FsError::NotFound
            | FsError::Exists
            | FsError::NotDirectory
            | FsError::IsDirectory
            | FsError::NotEmpty
            | FsError::NoData
            | FsError::Conflict
    )
}
