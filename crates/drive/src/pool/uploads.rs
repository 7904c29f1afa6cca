//! Uploads of a pool: each is stored on its key's home, which the key keeps as long as the upload exists. An upload's id begins with the
//! number of its drive, as two hexadecimal digits.

use super::bucket::{PoolBucket, UNKNOWN_BYTES};
use super::{Pool, UploadKey, run_detached};
use crate::bucket::DriveBucket;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use std::sync::Arc;
use store::{
    Attributes, Buckets, CompleteOptions, MakePartNote, ObjectKey, ObjectRef, Part, Result, StoreError, Tags,
    Upload, Uploads,
};

impl Pool {
    /// Acquires placement locks for all uploads in progress on the present drives.
    pub(super) async fn lock_upload_homes(&self) -> Result<()> {
        for (number, drive) in self.present() {
            for name in Buckets::list(drive).await? {
                let name: Arc<str> = name.into();
                for upload in Uploads::list(&drive.bucket(&name).await?, b"").await? {
                    let placement = self.0.placement_locks.acquire(&name, &upload.key);
                    placement.home(async { Ok(number) }).await?;
                    let upload_key = (name.clone(), upload.key, id_on(number, &upload.id));
                    self.0.uploads().insert(upload_key, placement);
                }
            }
        }
        Ok(())
    }
}

impl PoolBucket {
    /// Returns the bucket on the drive of an upload, and the upload's id there. Fails with `NotFound` if the id names
    /// no drive of the pool.
    fn bucket_with<'a>(&self, key: &ObjectKey, id: &'a str) -> Result<(&DriveBucket, &'a str)> {
        let missing = || StoreError::NotFound(key.clone());
        let (drive_prefix, id) = id.split_at_checked(2).ok_or_else(missing)?;
        let number = (0..self.buckets.len()).find(|&number| prefix(number) == drive_prefix);
        Ok((self.bucket_on(number.ok_or_else(missing)?)?, id))
    }

    fn upload_key(&self, key: &ObjectKey, id: &str) -> UploadKey {
        (self.name.clone(), key.clone(), id.to_owned())
    }

    /// Completes or aborts an upload by `work`. If the upload does not exist any more, releases its placement lock.
    async fn end<T: Send + 'static>(
        &self,
        upload_key: UploadKey,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let names = self.pool.0.names.clone().read_owned().await;
        let pool = self.pool.clone();
        run_detached(names, async move {
            let ended = work.await;
            if matches!(ended, Ok(_) | Err(StoreError::NotFound(_))) {
                pool.0.uploads().remove(&upload_key);
            }
            ended
        })
        .await
    }
}

#[async_trait::async_trait]
impl Uploads for PoolBucket {
    async fn begin(&self, key: &ObjectKey, attributes: Attributes, tags: Tags) -> Result<String> {
        let writing = self.begin_write(key, None, UNKNOWN_BYTES).await?;
        let (bucket, target, key) = (self.clone(), self.bucket_on(writing.home)?.clone(), key.clone());
        run_detached((), async move {
            let id = id_on(writing.home, &target.begin(&key, attributes, tags).await?);
            bucket.pool.0.uploads().insert(bucket.upload_key(&key, &id), writing.into_placement());
            Ok(id)
        })
        .await
    }

    async fn find(&self, key: &ObjectKey, id: &str) -> Result<Upload> {
        let (target, inner) = self.bucket_with(key, id)?;
        Ok(Upload { id: id.to_owned(), ..Uploads::find(target, key, inner).await? })
    }

    async fn put_part(
        &self,
        key: &ObjectKey,
        id: &str,
        number: u32,
        body: BoxStream<'_, Result<Bytes>>,
        make_note: MakePartNote<'_>,
    ) -> Result<Part> {
        let (target, id) = self.bucket_with(key, id)?;
        target.put_part(key, id, number, body, make_note).await
    }

    async fn parts(&self, key: &ObjectKey, id: &str) -> Result<Vec<Part>> {
        let (target, id) = self.bucket_with(key, id)?;
        target.parts(key, id).await
    }

    async fn complete(
        &self,
        key: &ObjectKey,
        id: &str,
        numbers: &[u32],
        options: CompleteOptions,
    ) -> Result<ObjectRef> {
        let upload_key = self.upload_key(key, id);
        let (target, id) = self.bucket_with(key, id)?;
        let (target, key, id, numbers) = (target.clone(), key.clone(), id.to_owned(), numbers.to_vec());
        self.end(upload_key, async move { Uploads::complete(&target, &key, &id, &numbers, options).await })
            .await
    }

    async fn abort(&self, key: &ObjectKey, id: &str) -> Result<()> {
        let upload_key = self.upload_key(key, id);
        let (target, id) = self.bucket_with(key, id)?;
        let (target, key, id) = (target.clone(), key.clone(), id.to_owned());
        self.end(upload_key, async move { Uploads::abort(&target, &key, &id).await }).await
    }

    async fn list(&self, prefix: &[u8]) -> Result<Vec<Upload>> {
        let mut found = Vec::new();
        for (number, target) in self.all()?.into_iter().enumerate() {
            let uploads = Uploads::list(target, prefix).await?;
            found
                .extend(uploads.into_iter().map(|upload| Upload { id: id_on(number, &upload.id), ..upload }));
        }
        // The sort is stable: the uploads of a key are on one drive, in the order of their beginnings.
        found.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(found)
    }
}

/// Returns the id of an upload in the pool: the drive's number and the id on the drive.
fn id_on(number: usize, id: &str) -> String {
    prefix(number) + id
}

/// Returns the number of a drive as it begins the ids of uploads.
fn prefix(number: usize) -> String {
    format!("{number:02x}")
}
