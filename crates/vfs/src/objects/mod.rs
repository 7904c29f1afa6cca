//! A volume as an object store, which Tenon's own S3 endpoint serves.
//!
//! Keys are paths. In a volume named by path they are keys of the bucket, and calls go through to it, in one order with the
//! mount's own changes. In a volume named by inode they are names of the namespace, and content is in objects that are not
//! served. In both cases the mount shows a change when its call returns.
//!
//! Does not show or change anything below `.tenon`; does not know HTTP.
//!
//! Invariant: a reader sees all that one call stored, or nothing of it.

mod at_path;
mod body;
mod buckets;
mod description;
mod errors;
mod etag;
pub(crate) mod moved_settings;
mod named;
mod settings;
mod settings_cache;
mod uploads;

use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use store::{Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Settings, StoreError, Tags, Uploads};

use crate::Filesystem;

pub use buckets::DirectoryBuckets;
pub(crate) use description::OWN;
pub(crate) use moved_settings::MovedSettings;
pub(crate) use uploads::from_hex;

/// A volume, or one of its directories, as a bucket.
#[derive(Clone)]
pub struct Objects {
    fs: Arc<Filesystem>,
    /// Prefix of every path; empty, or ending in `/`.
    base: Bytes,
}

impl Objects {
    /// Serves the objects of the directory `base` (`bucket/`), or of the whole volume if it is empty. A missing directory is
    /// reported by the calls, not here.
    pub fn new(fs: Arc<Filesystem>, base: &[u8]) -> Self {
        let slash: &[u8] = if base.is_empty() || base.ends_with(b"/") { b"" } else { b"/" };
        Self { fs, base: [base, slash].concat().into() }
    }

    /// Returns the path of the directory; `None` for the volume's root.
    fn bucket(&self) -> Option<&[u8]> {
        self.base.strip_suffix(b"/")
    }

    fn is_by_path(&self) -> bool {
        self.fs.mount.layout.follows_paths()
    }

    fn check_writable(&self) -> store::Result<()> {
        self.fs.mount.check_writable().map_err(|error| StoreError::Denied(error.to_string()))
    }

    /// Returns the claim of a key.
    fn claim_key(&self, key: &ObjectKey) -> ObjectKey {
        let path = [&self.base, key.as_bytes()].concat();
        // Keys with equal tails share a claim, which only makes their changes wait for each other.
        let end = path.len().min(store::KEY_BYTES_MAX);
        ObjectKey::new(path[path.len() - end..].to_vec()).unwrap_or_else(|_| key.clone())
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("base", &self.base).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl ObjectStore for Objects {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> store::Result<Object> {
        match self.is_by_path() {
            true => self.get_at_path(key, options).await,
            false => self.get_named(key, options).await,
        }
    }

    async fn head(&self, key: &ObjectKey) -> store::Result<ObjectMeta> {
        match self.is_by_path() {
            true => self.head_at_path(key).await,
            false => self.head_named(key),
        }
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> store::Result<ObjectRef> {
        self.check_writable()?;
        match self.is_by_path() {
            true => Box::pin(self.put_at_path(key, body, options)).await,
            false => Box::pin(self.put_named(key, body, options)).await,
        }
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> store::Result<Arc<dyn Multipart>> {
        self.check_writable()?;
        match self.is_by_path() {
            true => self.multipart_at_path(key, attributes, tags).await,
            false => self.multipart_named(key, attributes, tags),
        }
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> store::Result<ObjectRef> {
        self.check_writable()?;
        match self.is_by_path() {
            true => Box::pin(self.copy_at_path(from, to, options)).await,
            false => Box::pin(self.copy_named(from, to, options)).await,
        }
    }

    async fn rename(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        precondition: Precondition,
    ) -> store::Result<()> {
        self.check_writable()?;
        match self.is_by_path() {
            true => store::rename_by_copy(self, from, to, precondition).await,
            false => self.rename_named(from, to, &precondition).await,
        }
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> store::Result<()> {
        self.check_writable()?;
        match self.is_by_path() {
            true => Box::pin(self.delete_at_path(key, precondition)).await,
            false => Box::pin(self.delete_named(key, &precondition)).await,
        }
    }

    async fn list(&self, request: ListRequest) -> store::Result<ListPage> {
        match self.is_by_path() {
            true => self.list_at_path(request).await,
            false => self.list_named(request).await,
        }
    }

    async fn tags(&self, key: &ObjectKey) -> store::Result<Tags> {
        match self.is_by_path() {
            true => self.tags_at_path(key).await,
            false => self.tags_named(key),
        }
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> store::Result<()> {
        self.check_writable()?;
        match self.is_by_path() {
            true => self.set_tags_at_path(key, tags).await,
            false => self.set_tags_named(key, &tags).await,
        }
    }

    /// Syncs all changes made here and through the mount.
    async fn sync(&self) -> store::Result<()> {
        self.fs.sync().await.map_err(|error| match error {
            crate::Error::Store(error) => error,
            error => StoreError::Unavailable(error.to_string()),
        })
    }

    fn uploads(&self) -> Option<&dyn Uploads> {
        Some(self)
    }

    fn settings(&self) -> Option<&dyn Settings> {
        Some(self)
    }
}
