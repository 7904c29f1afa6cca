//! The directory of a volume whose objects are served, in the part that does not depend on how the volume names its objects.

use bytes::Bytes;
use meta::Extent;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use store::{ObjectKey, StoreError};

use crate::Filesystem;

/// A directory of a volume.
#[derive(Clone)]
pub(crate) struct ServedDirectory {
    pub(super) fs: Arc<Filesystem>,
    /// Prefix of every path; empty, or ending in `/`.
    pub(super) base: Bytes,
}

impl ServedDirectory {
    pub(super) fn new(fs: &Arc<Filesystem>, base: &[u8]) -> Self {
        let slash: &[u8] = if base.is_empty() || base.ends_with(b"/") { b"" } else { b"/" };
        Self { fs: fs.clone(), base: [base, slash].concat().into() }
    }

    /// Returns the path of the directory; `None` for the volume's root.
    pub(super) fn path(&self) -> Option<&[u8]> {
        self.base.strip_suffix(b"/")
    }

    /// Returns the path of an object.
    pub(super) fn path_of(&self, key: &ObjectKey) -> Vec<u8> {
        [&self.base, key.as_bytes()].concat()
    }

    pub(super) fn check_writable(&self) -> store::Result<()> {
        self.fs.mount.check_writable().map_err(|error| StoreError::Denied(error.to_string()))
    }

    /// Returns the key by which changes of an object are locked: the end of its path, at most as long as a key.
    pub(super) fn key_to_lock(&self, key: &ObjectKey) -> ObjectKey {
        let path = self.path_of(key);
        // Keys with equal tails share a lock, which only makes their changes wait for each other.
        let end = path.len().min(store::KEY_BYTES_MAX);
        ObjectKey::new(path[path.len() - end..].to_vec()).unwrap_or_else(|_| key.clone())
    }

    /// Discards the objects of content that no inode has.
    pub(super) async fn discard_all(&self, content: &[Extent]) {
        let keys: BTreeSet<ObjectKey> =
            content.iter().filter_map(|extent| extent.object.key.clone()).collect();
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

impl fmt::Debug for ServedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedDirectory").field("base", &self.base).finish_non_exhaustive()
    }
}
