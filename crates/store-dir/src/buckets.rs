//! Buckets as the subdirectories of a local directory.

use super::staging::DIR_MODE;
use super::tree::open_child;
use super::{DirOptions, DirStore, Durability, blocking, errno, place};
use rustix::fs::{AtFlags, Dir, fsync, mkdirat, unlinkat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use store::{Buckets, Clock, Entropy, ListRequest, ObjectStore, Result, StoreError, bucket_name};

/// A directory in which every subdirectory with a valid bucket name is a bucket.
#[derive(Clone)]
pub struct DirBuckets(Arc<Shared>);

struct Shared {
    path: PathBuf,
    tree: super::Tree,
    options: DirOptions,
    clock: Arc<dyn Clock>,
    entropy: Arc<Entropy>,
    /// One store per bucket, because preconditions are atomic only within one store.
    opened: Mutex<BTreeMap<String, DirStore>>,
}

impl DirBuckets {
    /// Opens a directory that exists; blocks for a few system calls.
    ///
    /// Errors: `NoSuchBucket` without such a directory, `Denied` without permission.
    pub fn open(
        path: &Path,
        options: DirOptions,
        clock: Arc<dyn Clock>,
        entropy: Arc<Entropy>,
    ) -> Result<Self> {
        let tree = super::Tree::open(path)?;
        let (path, opened) = (path.to_owned(), Mutex::default());
        Ok(Self(Arc::new(Shared { path, tree, options, clock, entropy, opened })))
    }
}

impl fmt::Debug for DirBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirBuckets").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Shared {
    fn open(&self, name: &str) -> Result<DirStore> {
        bucket_name::check(name).map_err(|_| no_such_bucket(name))?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = opened.get(name) {
            return Ok(store.clone());
        }
        self.check_is_directory(name)?;
        let path = self.path.join(name);
        let store = DirStore::open(&path, self.options, self.clock.clone(), self.entropy.clone())?;
        opened.insert(name.to_owned(), store.clone());
        Ok(store)
    }

    fn check_is_directory(&self, name: &str) -> Result<()> {
        match open_child(self.tree.root(), name.as_bytes()) {
            Ok(_) => Ok(()),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(no_such_bucket(name)),
            Err(error) => Err(errno::about(&name, error)),
        }
    }

    fn create(&self, name: &str) -> Result<()> {
        bucket_name::check(name)?;
        match mkdirat(self.tree.root(), name, DIR_MODE) {
            Ok(()) => self.flush().map_err(|error| errno::about(&name, error)),
            Err(Errno::EXIST) => Err(bucket_name::exists(name)),
            Err(error) => Err(errno::about(&name, error)),
        }
    }

    fn flush(&self) -> Result<(), Errno> {
        match self.options.durability {
            Durability::Flush => fsync(self.tree.root()),
            Durability::None => Ok(()),
        }
    }

    /// Removes a bucket that was found empty. If an object was stored meanwhile, its directory is not empty, and the
    /// removal fails with `BucketState`.
    fn delete(&self, name: &str) -> Result<()> {
        let bucket =
            open_child(self.tree.root(), name.as_bytes()).map_err(|error| errno::about(&name, error))?;
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        unlinkat(&bucket, place::OWN_DIR, AtFlags::REMOVEDIR).ok();
        match unlinkat(self.tree.root(), name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(bucket_name::not_empty(name)),
            Err(error) => Err(errno::about(&name, error)),
        }
    }

    fn list(&self) -> Result<Vec<String>, Errno> {
        let mut names = Vec::new();
        for entry in Dir::read_from(self.tree.root())? {
            let entry = entry?;
            let name = String::from_utf8_lossy(entry.file_name().to_bytes()).into_owned();
            if bucket_name::check(&name).is_ok() && self.check_is_directory(&name).is_ok() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

#[async_trait::async_trait]
impl Buckets for DirBuckets {
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        let (shared, name) = (self.0.clone(), name.to_owned());
        Ok(Arc::new(blocking(move || shared.open(&name)).await?))
    }

    async fn create(&self, name: &str) -> Result<()> {
        let (shared, name) = (self.0.clone(), name.to_owned());
        blocking(move || shared.create(&name)).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let first = ListRequest { limit: 1, ..ListRequest::default() };
        if !Buckets::open(self, name).await?.list(first).await?.entries.is_empty() {
            return Err(bucket_name::not_empty(name));
        }
        let (shared, name) = (self.0.clone(), name.to_owned());
        blocking(move || shared.delete(&name)).await
    }

    async fn list(&self) -> Result<Vec<String>> {
        let shared = self.0.clone();
        blocking(move || shared.list().map_err(|error| errno::about(&shared.path.display(), error))).await
    }
}

fn no_such_bucket(name: &str) -> StoreError {
    StoreError::NoSuchBucket(name.to_owned())
}
