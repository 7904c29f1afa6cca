//! A multipart upload in a volume named by path, within the process that completes it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use store::{Attributes, Multipart, ObjectKey, ObjectRef, Payload, Precondition, Tags};

use super::ObjectsAtPath;
use super::about_key;

struct PathUpload {
    objects: ObjectsAtPath,
    key: ObjectKey,
    full: ObjectKey,
    inner: Arc<dyn Multipart>,
}

impl ObjectsAtPath {
    pub(super) async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> store::Result<Arc<dyn Multipart>> {
        let full = self.full_key(key)?;
        let begun = self.fs.mount.store.multipart(&full, attributes, tags).await;
        let inner = begun.map_err(|error| about_key(key, error))?;
        Ok(Arc::new(PathUpload { objects: self.clone(), key: key.clone(), full, inner }))
    }
}

impl fmt::Debug for PathUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathUpload").field("key", &self.key).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Multipart for PathUpload {
    async fn put_part(&self, number: u32, body: Payload) -> store::Result<()> {
        self.inner.put_part(number, body).await.map_err(|error| about_key(&self.key, error))
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> store::Result<()> {
        let source = self.objects.source_at_path(from).await?;
        self.inner.copy_part(number, &source, range).await.map_err(|error| about_key(&from.key, error))
    }

    async fn complete(&self, precondition: Precondition) -> store::Result<ObjectRef> {
        let stored = self.objects.change_key(&self.full, false, self.inner.complete(precondition)).await;
        let stored = stored.map_err(|error| about_key(&self.key, error))?;
        Ok(ObjectRef { key: self.key.clone(), ..stored })
    }

    async fn abort(&self) -> store::Result<()> {
        self.inner.abort().await
    }
}
