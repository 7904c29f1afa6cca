//! The directories at a volume's root as buckets.

use meta::{Ino, Inode, Name, Origin};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use store::{Buckets, ListRequest, ObjectKey, ObjectStore, StoreError, Timestamp, Uploads as _, bucket_name};

use super::at_path::ObjectsAtPath;
use super::directory_objects::{DirectoryObjects, ObjectNaming};
use super::errors::error_about;
use super::named::NamedObjects;
use crate::attr::Caller;
use crate::volumes::Volume;
use crate::{Error, Filesystem};

/// The directories at the volume's root whose names are valid bucket names.
#[derive(Clone)]
struct DirectoryBuckets<N> {
    fs: Arc<Filesystem>,
    naming: PhantomData<N>,
}

/// Serves the directories at the root of a volume as buckets.
pub fn directory_buckets(fs: &Arc<Filesystem>) -> Arc<dyn Buckets> {
    match fs.volume {
        Volume::ByPath(_) => Arc::new(DirectoryBuckets::<ObjectsAtPath>::new(fs)),
        Volume::ByInode(_) => Arc::new(DirectoryBuckets::<NamedObjects>::new(fs)),
    }
}

impl<N: ObjectNaming> DirectoryBuckets<N> {
    fn new(fs: &Arc<Filesystem>) -> Self {
        Self { fs: fs.clone(), naming: PhantomData }
    }

    fn objects(&self, name: &str) -> DirectoryObjects<N> {
        DirectoryObjects::new(&self.fs, name.as_bytes())
    }

    /// Returns the directory that is a bucket. Fails if there is none of this name.
    async fn find(&self, name: &str) -> store::Result<Inode> {
        bucket_name::check(name).map_err(|_| no_such_bucket(name))?;
        let (key, bytes) = (key_of(name)?, Name::new(name.as_bytes()).map_err(|_| no_such_bucket(name))?);
        let found =
            Box::pin(self.fs.bucket.discovery.find(Ino::ROOT, &bytes)).await.map_err(error_about(&key))?;
        found.filter(Inode::is_dir).ok_or_else(|| no_such_bucket(name))
    }
}

impl<N> fmt::Debug for DirectoryBuckets<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectoryBuckets").finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl<N: ObjectNaming> Buckets for DirectoryBuckets<N>
where
    DirectoryObjects<N>: ObjectStore,
{
    async fn open(&self, name: &str) -> store::Result<Arc<dyn ObjectStore>> {
        self.find(name).await?;
        Ok(Arc::new(self.objects(name)))
    }

    async fn create(&self, name: &str) -> store::Result<()> {
        bucket_name::check(name)?;
        let config = &self.fs.mount.config;
        let caller = Caller { uid: config.uid, gid: config.gid, umask: 0 };
        let made =
            Box::pin(self.fs.mkdir_by(Origin::Other, caller, Ino::ROOT, name.as_bytes(), config.dir_mode));
        let made = made.await;
        match made {
            Ok(made) => self.fs.bucket.name_evictor.forget(made.ino, 1),
            Err(error) if error.errno() == libc::EEXIST => return Err(bucket_name::exists(name)),
            Err(error) => return Err(error_about(&key_of(name)?)(error)),
        }
        self.fs.names.sync_names_unless_write_back().await.map_err(error_about(&key_of(name)?))?;
        // Clears settings that remain of a directory of this name which was removed through the mount or by another machine.
        let objects = self.objects(name);
        objects.forget_settings(objects.remaining_documents()?).await?;
        Box::pin(self.fs.settings.move_pending_settings()).await?;
        self.fs.names.delivered().await;
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
        let settings = objects.remaining_documents()?;
        let gone = Box::pin(self.fs.rmdir_by(Origin::Other, Ino::ROOT, name.as_bytes())).await;
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
        self.fs.names.delivered().await;
        Ok(())
    }

    async fn list(&self) -> store::Result<Vec<String>> {
        let mut found = N::directories(&self.fs).await?;
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

/// Returns a bucket's name as a key, for errors.
fn key_of(name: &str) -> store::Result<ObjectKey> {
    Ok(ObjectKey::try_from(name)?)
}
