//! The directories at a volume's root as buckets.

use meta::{Ino, Inode, Kind, Name};
use std::fmt;
use std::sync::Arc;
use store::{Buckets, ListEntry, ListRequest, ObjectKey, ObjectStore, Pages, StoreError, Timestamp, Uploads as _, bucket_name};

use super::Objects;
use super::errors::{error_about, namespace_error_about};
use crate::{Error, Filesystem};
use crate::attr::Caller;
use crate::names::invalidation::Invalidation;

/// Names per step of a scan of the root.
const BATCH: usize = 256;

/// The directories at the volume's root whose names are valid bucket names.
#[derive(Clone)]
pub struct DirectoryBuckets {
    fs: Arc<Filesystem>,
}

impl DirectoryBuckets {
    /// Serves the buckets of a volume.
    pub fn new(fs: Arc<Filesystem>) -> Self {
        Self { fs }
    }

    fn objects(&self, name: &str) -> Objects {
        Objects::new(self.fs.clone(), name.as_bytes())
    }

    async fn find(&self, name: &str) -> store::Result<Inode> {
        bucket_name::check(name).map_err(|_| no_such_bucket(name))?;
        let (key, bytes) = (key_of(name)?, Name::new(name.as_bytes()).map_err(|_| no_such_bucket(name))?);
        let found = Box::pin(self.fs.bucket.discovery.find(Ino::ROOT, &bytes)).await.map_err(error_about(&key))?;
        found.filter(Inode::is_dir).ok_or_else(|| no_such_bucket(name))
    }

    /// Lists the buckets of a volume named by path from the bucket itself.
    async fn list_bucket(&self) -> store::Result<Vec<String>> {
        let prefix: bytes::Bytes = self.fs.mount.config.prefix.clone().into();
        let request = ListRequest {
            prefix: prefix.clone(),
            delimiter: Some(b'/'),
            limit: 1000,
            ..ListRequest::default()
        };
        let entries = Pages::of(self.fs.mount.store.as_ref(), request).all().await?;
        let name = |entry: &ListEntry| match entry {
            ListEntry::Prefix(text) => {
                let inside = text.strip_prefix(&*prefix)?.strip_suffix(b"/")?;
                String::from_utf8(inside.to_vec()).ok()
            }
            ListEntry::Object { .. } => None,
        };
        Ok(entries.iter().filter_map(name).collect())
    }

    fn list_names(&self) -> Result<Vec<String>, meta::FsError> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let entries = self.fs.names.tables().entries(Ino::ROOT, after.as_ref(), BATCH)?;
            let Some((last, _)) = entries.last() else { return Ok(found) };
            after = Some(last.clone());
            let directories = entries.iter().filter(|(_, entry)| entry.kind == Kind::Directory);
            found
                .extend(directories.filter_map(|(name, _)| String::from_utf8(name.as_bytes().to_vec()).ok()));
        }
    }

    async fn invalidate(&self, name: &str) {
        let news = vec![Invalidation::entry(Ino::ROOT, name.as_bytes()), Invalidation::Inode(Ino::ROOT)];
        self.fs.names.invalidations().deliver(news).await;
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
        let config = &self.fs.mount.config;
        let caller = Caller { uid: config.uid, gid: config.gid, umask: 0 };
        let made = Box::pin(self.fs.mkdir(caller, Ino::ROOT, name.as_bytes(), config.dir_mode)).await;
        match made {
            Ok(made) => self.fs.bucket.evictor.forget(made.ino, 1),
            Err(error) if error.errno() == libc::EEXIST => return Err(bucket_name::exists(name)),
            Err(error) => return Err(error_about(&key_of(name)?)(error)),
        }
        self.fs.names.sync_names_unless_write_back().await.map_err(error_about(&key_of(name)?))?;
        // Clears settings that remain of a directory of this name which was removed through the mount or by another machine.
        match self.fs.mount.layout.follows_paths() {
            true => Box::pin(self.fs.settings.move_pending_settings()).await?,
            false => {
                let objects = self.objects(name);
                objects.forget_settings(objects.settings_prefixes()?).await?;
            }
        }
        self.invalidate(name).await;
        Ok(())
    }

    /// Deletes a bucket together with its settings and its unfinished uploads.
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
        let settings = match self.fs.mount.layout.follows_paths() {
            true => Vec::new(),
            false => objects.settings_prefixes()?,
        };
        let gone = Box::pin(self.fs.rmdir(Ino::ROOT, name.as_bytes())).await;
        match gone {
            Ok(()) => {}
            Err(Error::Errno { errno: libc::ENOTEMPTY, .. })
            | Err(Error::Namespace(meta::FsError::NotEmpty)) => return Err(bucket_name::not_empty(name)),
            Err(error) if error.errno() == libc::ENOENT => return Err(no_such_bucket(name)),
            Err(error) => return Err(error_about(&key_of(name)?)(error)),
        }
        // If the process dies before this, creating a bucket of the same name clears the settings.
        objects.forget_settings(settings).await?;
        Box::pin(self.fs.settings.move_pending_settings()).await?;
        self.invalidate(name).await;
        Ok(())
    }

    async fn list(&self) -> store::Result<Vec<String>> {
        let mut found = match self.fs.mount.layout.follows_paths() {
            true => self.list_bucket().await?,
            false => self.list_names().map_err(namespace_error_about(&key_of("/")?))?,
        };
        found.retain(|name| bucket_name::check(name).is_ok());
        found.sort();
        Ok(found)
    }

    async fn made_at(&self, name: &str) -> store::Result<Timestamp> {
        Ok(self.find(name).await?.btime)
    }
}

fn no_such_bucket(name: &str) -> StoreError {
    StoreError::NoSuchBucket(name.to_owned())
}

fn key_of(name: &str) -> store::Result<ObjectKey> {
    Ok(ObjectKey::try_from(name)?)
}
