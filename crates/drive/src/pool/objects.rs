//! Objects of a pool: implements `ObjectStore`.

use super::bucket::{PoolBucket, UNKNOWN_BYTES};
use super::multipart::PoolMultipart;
use super::run_detached;
use super::writer::PoolWriter;
use crate::bucket::{DriveBucket, DriveMultipart, DriveWriter, copy_between_drives};
use std::sync::Arc;
use store::{
    Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta,
    ObjectRef, ObjectStore, ObjectWriter, Payload, Precondition, PutOptions, Result, Settings, Tags, Uploads,
    Versions, rename_by_copy,
};

#[async_trait::async_trait]
impl ObjectStore for PoolBucket {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let bucket = self.bucket_of(key, options.version.as_deref()).await?;
        ObjectStore::get(bucket, key, options).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        self.bucket_of(key, None).await?.head(key).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let (own, len_bytes) = (key.clone(), body.len());
        let put = |bucket: DriveBucket| async move { bucket.put(&own, body, options).await };
        self.change(key, len_bytes, put).await
    }

    async fn writer(&self, key: &ObjectKey, len_bytes: Option<u64>) -> Result<Option<Box<dyn ObjectWriter>>> {
        let writing = self.begin_write(key, None, len_bytes.unwrap_or(UNKNOWN_BYTES)).await?;
        let inner = DriveWriter::new(self.bucket_on(writing.home)?.clone(), key.clone(), len_bytes);
        let (inner, placement) = (Box::new(inner), writing.into_placement());
        Ok(Some(Box::new(PoolWriter { bucket: self.clone(), inner, placement })))
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let writing = self.begin_write(key, None, UNKNOWN_BYTES).await?;
        let home = writing.home;
        let inner = DriveMultipart::new(self.bucket_on(home)?.clone(), key.clone(), (attributes, tags));
        let (inner, placement) = (Arc::new(inner), Arc::new(writing.into_placement()));
        Ok(Arc::new(PoolMultipart { bucket: self.clone(), home, inner, placement }))
    }

    /// Copies to the drive of the source, where no data is moved, unless the target key has another home.
    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let number = self.drive_of(&from.key, from.version.as_deref()).await?;
        let source = self.bucket_on(number)?.clone();
        let writing = self.begin_write(to, Some(number), 0).await?;
        let target = self.bucket_on(writing.home)?.clone();
        let (from, to) = (from.clone(), to.clone());
        let is_same = writing.home == number;
        run_detached(writing, async move {
            match is_same {
                true => target.copy(&from, &to, options).await,
                false => copy_between_drives(&source, &from, &target, &to, options).await,
            }
        })
        .await
    }

    /// Renames atomically if both keys can be on one drive. If the target key has another home, copies and then removes the source.
    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        let number = self.drive_of(&from.key, from.version.as_deref()).await?;
        let writing = self.begin_write(to, Some(number), 0).await?;
        if writing.home != number {
            drop(writing);
            return rename_by_copy(self, from, to, precondition).await;
        }
        let (bucket, from, to) = (self.bucket_on(number)?.clone(), from.clone(), to.clone());
        run_detached(writing, async move { bucket.rename(&from, &to, precondition).await }).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        self.mark(key, precondition).await.map(drop)
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.page(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        ObjectStore::tags(self.bucket_of(key, None).await?, key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        let own = key.clone();
        self.change(key, 0, |bucket| async move { ObjectStore::set_tags(&bucket, &own, tags).await }).await
    }

    fn uploads(&self) -> Option<&dyn Uploads> {
        Some(self)
    }

    fn settings(&self) -> Option<&dyn Settings> {
        Some(self)
    }

    fn versions(&self) -> Option<&dyn Versions> {
        Some(self)
    }
}
