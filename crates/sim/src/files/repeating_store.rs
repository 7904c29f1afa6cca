//! A store that sometimes receives a change twice, as from a client that repeats a request after a lost reply.

use super::fault_injector::FaultInjector;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{
    Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta,
    ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, Tags,
};

/// Wraps a store. Of a repeated call the second result is returned.
#[derive(Debug, Clone)]
pub(super) struct RepeatingStore<S> {
    pub(super) store: S,
    pub(super) injector: Arc<FaultInjector>,
}

#[async_trait::async_trait]
impl<S: ObjectStore> ObjectStore for RepeatingStore<S> {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        self.store.get(key, options).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        self.store.head(key).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        if self.injector.draw_repeat() {
            drop(self.store.put(key, body.clone(), options.clone()).await);
        }
        self.store.put(key, body, options).await
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let upload = self.store.multipart(key, attributes, tags).await?;
        Ok(Arc::new(RepeatedUpload { upload, completed: Mutex::default() }))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        if self.injector.draw_repeat() {
            drop(self.store.copy(from, to, options.clone()).await);
        }
        self.store.copy(from, to, options).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        if self.injector.draw_repeat() {
            drop(self.store.delete(key, precondition.clone()).await);
        }
        self.store.delete(key, precondition).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.store.list(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.store.tags(key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        self.store.set_tags(key, tags).await
    }
}

#[derive(Debug)]
struct RepeatedUpload {
    upload: Arc<dyn Multipart>,
    /// The completed object. A repeated completion returns the same object, as the S3 client does by a lookup.
    completed: Mutex<Option<ObjectRef>>,
}

impl RepeatedUpload {
    fn completed(&self) -> MutexGuard<'_, Option<ObjectRef>> {
        self.completed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait::async_trait]
impl Multipart for RepeatedUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        self.upload.put_part(number, body).await
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        self.upload.copy_part(number, from, range).await
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        if let Some(completed) = self.completed().clone() {
            return Ok(completed);
        }
        let object = self.upload.complete(precondition).await?;
        *self.completed() = Some(object.clone());
        Ok(object)
    }

    async fn abort(&self) -> Result<()> {
        self.upload.abort().await
    }
}
