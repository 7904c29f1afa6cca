//! The objects of one directory of a volume, in the part that does not depend on how the volume names its objects.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use meta::{Extent, Ino};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use store::{ObjectKey, ObjectRef, StoreError};

use crate::Filesystem;
use crate::objects::document::Document;
use crate::objects::uploads::completion::Completion;

/// How a volume names its objects, where uploads and settings depend on it.
pub(crate) trait ObjectNaming: fmt::Debug + Clone + Copy + Send + Sync + Sized + 'static {
    /// Returns the directory below which an upload to a key gets its inode.
    fn upload_directory(objects: &DirectoryObjects<Self>, key: &ObjectKey) -> store::Result<Ino>;

    /// Makes an object of an upload's parts, and ends the upload.
    fn complete<'c>(
        objects: &'c DirectoryObjects<Self>,
        completion: Completion<'c>,
    ) -> BoxFuture<'c, store::Result<ObjectRef>>;

    /// Returns where the document of a directory is stored; `by_name` is its key by the directory's name.
    fn document(
        objects: &DirectoryObjects<Self>,
        bucket: &[u8],
        name: &str,
        by_name: ObjectKey,
    ) -> store::Result<Document>;

    /// Returns the key prefixes of documents that remain when the directory is removed.
    fn remaining_documents(objects: &DirectoryObjects<Self>) -> store::Result<Vec<Bytes>>;

    /// Returns the names of the directories at the root.
    fn directories(fs: &Filesystem) -> BoxFuture<'_, store::Result<Vec<String>>>;
}

/// Keys are paths of the bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByPath;

/// Keys are paths of names in the namespace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByInode;

/// The objects of a volume named by path.
pub(crate) type PathObjects = DirectoryObjects<ByPath>;

/// The objects of a volume named by inode.
pub(crate) type InodeObjects = DirectoryObjects<ByInode>;

/// The objects of a directory.
#[derive(Clone)]
pub(crate) struct DirectoryObjects<N> {
    pub(super) fs: Arc<Filesystem>,
    /// Prefix of every path; empty, or ending in `/`.
    pub(super) base: Bytes,
    naming: PhantomData<N>,
}

impl<N: ObjectNaming> DirectoryObjects<N> {
    pub(super) fn new(fs: &Arc<Filesystem>, base: &[u8]) -> Self {
        let slash: &[u8] = if base.is_empty() || base.ends_with(b"/") { b"" } else { b"/" };
        Self { fs: fs.clone(), base: [base, slash].concat().into(), naming: PhantomData }
    }

    /// Returns the path of the directory; `None` for the volume's root.
    pub(super) fn bucket(&self) -> Option<&[u8]> {
        self.base.strip_suffix(b"/")
    }

    pub(super) fn check_writable(&self) -> store::Result<()> {
        self.fs.mount.check_writable().map_err(|error| StoreError::Denied(error.to_string()))
    }

    /// Returns the key by which changes of an object are locked: the end of its path, at most as long as a key.
    pub(super) fn key_to_lock(&self, key: &ObjectKey) -> ObjectKey {
        let path = [&self.base, key.as_bytes()].concat();
        // Keys with equal tails share a lock, which only makes their changes wait for each other.
        let end = path.len().min(store::KEY_BYTES_MAX);
        ObjectKey::new(path[path.len() - end..].to_vec()).unwrap_or_else(|_| key.clone())
    }

    pub(super) async fn discard_all(&self, content: &[Extent]) {
        let inode = content.iter().filter_map(|extent| extent.object.key.clone());
        let keys: std::collections::BTreeSet<ObjectKey> = inode.collect();
        for key in keys {
            self.fs.content.discard(key).await;
        }
    }

    /// Syncs all changes made here and through the mount.
    pub(super) async fn sync_all(&self) -> store::Result<()> {
        self.fs.sync().await.map_err(|error| match error {
            crate::Error::Store(error) => error,
            error => StoreError::Unavailable(error.to_string()),
        })
    }
}

impl<N> fmt::Debug for DirectoryObjects<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectoryObjects").field("base", &self.base).finish_non_exhaustive()
    }
}
