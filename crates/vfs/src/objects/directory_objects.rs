//! The objects of one directory of a volume, as a store with uploads and settings.
//!
//! [`PathObjects`] and [`InodeObjects`] are object stores; both have the same uploads and settings, which ask an [`ObjectNaming`] for what
//! depends on how the volume names its objects.

use futures_util::future::BoxFuture;
use meta::Ino;
use std::fmt;
use std::sync::Arc;
use store::{ObjectKey, ObjectRef};

use crate::Filesystem;
use crate::objects::at_path::ObjectsAtPath;
use crate::objects::document::Document;
use crate::objects::named::NamedObjects;
use crate::objects::served_directory::ServedDirectory;
use crate::objects::uploads::DirectoryUploads;
use crate::objects::uploads::completion::Completion;

/// How a volume names its objects, where uploads and settings depend on it.
pub(crate) trait ObjectNaming: fmt::Debug + Clone + Send + Sync + Sized + 'static {
    /// Whether the documents of a directory remain when it is removed. Otherwise the removal notes them as moved.
    const DOCUMENTS_REMAIN: bool;

    fn new(directory: &ServedDirectory) -> Self;

    /// Returns the directory below which an upload to a key gets its inode.
    fn upload_directory(&self, key: &ObjectKey) -> store::Result<Ino>;

    /// Makes an object of an upload's parts, and ends the upload.
    fn complete<'c>(&'c self, completion: Completion<'c>) -> BoxFuture<'c, store::Result<ObjectRef>>;

    /// Returns where the document of a directory is stored; `by_name` is its key by the directory's name.
    fn document(&self, bucket: &[u8], name: &str, by_name: ObjectKey) -> store::Result<Document>;

    /// Returns the names of the directories at the root.
    fn directories(fs: &Filesystem) -> BoxFuture<'_, store::Result<Vec<String>>>;
}

/// The objects of a directory in a volume named by path: keys are paths of the bucket.
pub(crate) type PathObjects = DirectoryObjects<ObjectsAtPath>;

/// The objects of a directory in a volume named by inode: keys are paths of names in the namespace.
pub(crate) type InodeObjects = DirectoryObjects<NamedObjects>;

/// The objects of a directory.
#[derive(Debug, Clone)]
pub(crate) struct DirectoryObjects<N> {
    pub(super) directory: ServedDirectory,
    pub(super) naming: N,
    pub(super) uploads: DirectoryUploads,
}

impl<N: ObjectNaming> DirectoryObjects<N> {
    /// Serves the directory `base` of a volume, or the whole volume if it is empty.
    pub(super) fn new(fs: &Arc<Filesystem>, base: &[u8]) -> Self {
        let directory = ServedDirectory::new(fs, base);
        let (naming, uploads) = (N::new(&directory), DirectoryUploads::new(&directory));
        Self { directory, naming, uploads }
    }
}
