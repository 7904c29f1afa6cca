//! Objects in a local directory, which may contain files of other programs.
//!
//! Owns the mapping of keys to files ([`names`](store::names): ordinary keys are ordinary paths), the record in
//! the extended attribute `user.tenon` of each file that the store wrote, and the directory `.tenon-store` in the root
//! for files that are being written. A file of another program is an object too: its etag is derived from its inode, size
//! and modification time, as is the etag of a file that was changed in place after it was stored.
//!
//! Not supported: symbolic links and special files, which are neither followed nor listed; file systems without
//! extended attributes, unless opened read-only; versions. A directory without any file in it has no key and
//! is not listed. Removing the last object of a directory removes the directory. A file whose path is too long for a
//! key is not an object.
//!
//! Invariants: an object is created, replaced and removed by one rename or unlink, so that readers see the old bytes
//! or the new; with [`Durability::Flush`] the change is on the disk when the call returns; preconditions are atomic
//! among the callers of one store and its clones, `Absent` also among stores and processes.

mod buckets;
mod commit;
mod copy;
mod errno;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod locks;
mod place;
mod read;
mod record;
mod snapshot;
mod staging;
mod tree;
mod upload;
mod walk;

pub use buckets::DirBuckets;

use locks::PathLocks;
use place::Place;
use record::Record;
use snapshot::Snapshots;
use staging::Staging;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{
    Attributes, Clock, CopyOptions, Entropy, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey,
    ObjectMeta, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, StoreError, Tags,
};
use tree::Tree;

/// The failures that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A power failure: file and directory are flushed.
    #[default]
    Flush,
    /// The end of the process, but not a power failure: for caches and measurements.
    None,
}

/// Options of opening a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirOptions {
    /// The failures that a write survives.
    pub durability: Durability,
    /// Whether all writes are refused. The directory `.tenon-store` is then not made.
    pub read_only: bool,
}

/// A bucket in a local directory. Clones share their state.
#[derive(Clone)]
pub struct DirStore(Arc<Shared>);

struct Shared {
    path: PathBuf,
    tree: Tree,
    /// `None` if opened read-only.
    staging: Option<Arc<Staging>>,
    locks: PathLocks,
    snapshots: Snapshots,
    durability: Durability,
    clock: Arc<dyn Clock>,
    entropy: Arc<Entropy>,
}

impl DirStore {
    /// Opens an existing directory and, unless read-only, removes abandoned files in `.tenon-store`. Blocks for the
    /// system calls.
    ///
    /// Errors: `NoSuchBucket` if there is no such directory, `Denied` without permission; unless read-only also
    /// `Unsupported` if its file system has no extended attributes, and `Invalid` if `.tenon-store` is not a
    /// directory.
    pub fn open(
        path: &Path,
        options: DirOptions,
        clock: Arc<dyn Clock>,
        entropy: Arc<Entropy>,
    ) -> Result<Self> {
        let tree = Tree::open(path)?;
        let staging = match options.read_only {
            true => None,
            false => Some(Arc::new(Staging::open(&tree, path, &*clock, entropy.clone())?)),
        };
        let (path, durability) = (path.to_owned(), options.durability);
        let (locks, snapshots) = (PathLocks::new(), Snapshots::new());
        Ok(Self(Arc::new(Shared { path, tree, staging, locks, snapshots, durability, clock, entropy })))
    }

    /// Runs blocking file operations on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Shared>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.0.clone();
        blocking(move || work(&shared)).await
    }
}

/// Runs blocking file operations on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(StoreError::Unavailable(format!("a call was cancelled: {error}"))))
}

impl fmt::Debug for DirStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirStore").field("path", &self.0.path).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl ObjectStore for DirStore {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let key = key.clone();
        self.blocking(move |shared| shared.get(&key, options)).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        let key = key.clone();
        self.blocking(move |shared| Ok(shared.find(&key)?.meta(&key))).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let key = key.clone();
        self.blocking(move |shared| shared.put(&key, &body, options)).await
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        Ok(Arc::new(self.0.begin_upload(key.clone(), attributes, tags)?))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let (from, to) = (from.clone(), to.clone());
        self.blocking(move |shared| shared.copy(&from, &to, options)).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        let key = key.clone();
        self.blocking(move |shared| shared.delete(&key, &precondition)).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let scan = store::listing::Scan::new(request, store::listing::PAGE_ENTRIES_MAX)?;
        self.blocking(move |shared| walk::page(shared, &scan)).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        let key = key.clone();
        self.blocking(move |shared| Ok(shared.find(&key)?.record.tags)).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        let key = key.clone();
        self.blocking(move |shared| shared.set_tags(&key, tags)).await
    }
}

impl Shared {
    fn put(&self, key: &ObjectKey, body: &Payload, options: PutOptions) -> Result<ObjectRef> {
        let mut staged = self.staging()?.create(key)?;
        staged.write(0, body)?;
        let record = Record { attributes: options.attributes, tags: options.tags, ..Record::default() };
        self.commit(key, &mut staged, record, 1, &options.precondition)
    }

    fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        self.staging()?;
        let _held = self.locks.lock(&Place::of(key).path());
        let mut found = self.find(key)?;
        found.record.tags = tags;
        found.record.write(&found.file, key)?;
        self.flush(&found.file, key)
    }

    /// Returns the staging directory; `Denied` if the store is open read-only.
    fn staging(&self) -> Result<&Arc<Staging>> {
        let read_only = || StoreError::Denied(format!("'{}' is open read-only", self.path.display()));
        self.staging.as_ref().ok_or_else(read_only)
    }
}
