//! The directories at a volume's root as buckets.

use meta::{Ino, Inode, Kind, Name};
use std::fmt;
use std::sync::Arc;
use store::{
    Buckets, ListEntry, ListRequest, ObjectKey, ObjectStore, Pages, StoreError, Timestamp, Uploads as _,
    bucket_name,
};

use super::Objects;
use super::errors::{about, named};
use crate::attr::Caller;
use crate::names::invalidation::Invalidation;
use crate::{Error, Filesystem};

/// Names taken from the root at once.
const BATCH: usize = 256;

/// The directories at the root whose names a bucket can have.
#[derive(Clone)]
pub struct DirectoryBuckets {
    fs: Arc<Filesystem>,
}

impl DirectoryBuckets {
    /// The buckets of a volume.
    pub fn new(fs: Arc<Filesystem>) -> Self {
        Self { fs }
    }

    fn objects(&self, name: &str) -> Objects {
        Objects::new(self.fs.clone(), name.as_bytes())
    }

    async fn find(&self, name: &str) -> store::Result<Inode> {
        bucket_name::check(name).map_err(|_| missing(name))?;
        let (key, bytes) = (key_of(name)?, Name::new(name.as_bytes()).map_err(|_| missing(name))?);
        let found = Box::pin(self.fs.find(Ino::ROOT, &bytes)).await.map_err(about(&key))?;
        found.filter(Inode::is_dir).ok_or_else(|| missing(name))
    }

    /// Of a volume named by path the bucket tells.
    async fn listed(&self) -> store::Result<Vec<String>> {
        let prefix: bytes::Bytes = self.fs.config.prefix.clone().into();
        let request = ListRequest {
            prefix: prefix.clone(),
            delimiter: Some(b'/'),
            limit: 1000,
            ..ListRequest::default()
        };
        let entries = Pages::of(self.fs.store.as_ref(), request).all().await?;
        let name = |entry: &ListEntry| match entry {
            ListEntry::Prefix(text) => {
                let inside = text.strip_prefix(&*prefix)?.strip_suffix(b"/")?;
                String::from_utf8(inside.to_vec()).ok()
            }
            ListEntry::Object { .. } => None,
        };
        Ok(entries.iter().filter_map(name).collect())
    }

    fn named(&self) -> Result<Vec<String>, meta::FsError> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let entries = self.fs.names.entries(Ino::ROOT, after.as_ref(), BATCH)?;
            let Some((last, _)) = entries.last() else { return Ok(found) };
            after = Some(last.clone());
            let directories = entries.iter().filter(|(_, entry)| entry.kind == Kind::Directory);
            found
                .extend(directories.filter_map(|(name, _)| String::from_utf8(name.as_bytes().to_vec()).ok()));
        }
    }

    async fn tell(&self, name: &str) {
        let news = vec![Invalidation::entry(Ino::ROOT, name.as_bytes()), Invalidation::Inode(Ino::ROOT)];
        self.fs.invalidations.deliver(news).await;
    }
}

impl fmt::Debug for DirectoryBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectoryBuckets").finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Buckets for DirectoryBuckets {
    async fn open(&self, name: &str) -> store::Result<Arc<dyn ObjectStore>> {
        self.find(name).await?;
        Ok(Arc::new(self.objects(name)))
    }

    async fn create(&self, name: &str) -> store::Result<()> {
        bucket_name::check(name)?;
        let config = &self.fs.config;
        let caller = Caller { uid: config.uid, gid: config.gid, umask: 0 };
        let made = Box::pin(self.fs.mkdir(caller, Ino::ROOT, name.as_bytes(), config.dir_mode)).await;
        match made {
            Ok(made) => self.fs.forget(made.ino, 1),
            Err(error) if error.errno() == libc::EEXIST => return Err(bucket_name::exists(name)),
            Err(error) => return Err(about(&key_of(name)?)(error)),
        }
        self.fs.names_first().await.map_err(about(&key_of(name)?))?;
        // Of a directory of this name that was removed through the mount, or by another machine.
        match self.fs.layout.follows_paths() {
            true => Box::pin(self.fs.settle_settings()).await?,
            false => {
                let objects = self.objects(name);
                objects.forget_settings(objects.settings_prefixes()?).await?;
            }
        }
        self.tell(name).await;
        Ok(())
    }

    /// What is set for it goes along, and so do its uploads.
    async fn delete(&self, name: &str) -> store::Result<()> {
        self.find(name).await?;
        let objects = self.objects(name);
        let first = ListRequest { limit: 1, ..ListRequest::default() };
        if !ObjectStore::list(&objects, first).await?.entries.is_empty() {
            return Err(bucket_name::not_empty(name));
        }
        for upload in store::Uploads::list(&objects, b"").await? {
            objects.abort(&upload.key, &upload.id).await?;
        }
        let settings = match self.fs.layout.follows_paths() {
            true => Vec::new(),
            false => objects.settings_prefixes()?,
        };
        let gone = Box::pin(self.fs.rmdir(Ino::ROOT, name.as_bytes())).await;
        match gone {
            Ok(()) => {}
            Err(Error::Errno { errno: libc::ENOTEMPTY, .. })
            | Err(Error::Namespace(meta::FsError::NotEmpty)) => return Err(bucket_name::not_empty(name)),
            Err(error) if error.errno() == libc::ENOENT => return Err(missing(name)),
            Err(error) => return Err(about(&key_of(name)?)(error)),
        }
        // If this ends before, the next bucket of the name clears them.
        objects.forget_settings(settings).await?;
        Box::pin(self.fs.settle_settings()).await?;
        self.tell(name).await;
        Ok(())
    }

    async fn list(&self) -> store::Result<Vec<String>> {
        let mut found = match self.fs.layout.follows_paths() {
            true => self.listed().await?,
            false => self.named().map_err(named(&key_of("/")?))?,
        };
        found.retain(|name| bucket_name::check(name).is_ok());
        found.sort();
        Ok(found)
    }

    async fn made_at(&self, name: &str) -> store::Result<Timestamp> {
        Ok(self.find(name).await?.btime)
    }
}

fn missing(name: &str) -> StoreError {
    StoreError::NoSuchBucket(name.to_owned())
}

fn key_of(name: &str) -> store::Result<ObjectKey> {
    Ok(ObjectKey::try_from(name)?)
}
