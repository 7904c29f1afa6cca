//! Buckets whose listings return only the objects of one part.

use super::Part;
use std::sync::Arc;
use store::{
    Attributes, Buckets, CopyOptions, GetOptions, ListEntry, ListPage, ListRequest, ListedObject, Multipart,
    Object, ObjectKey, ObjectMeta, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, Tags,
    Timestamp,
};

/// Buckets for the handler of one part.
#[derive(Debug)]
pub(super) struct PartBuckets {
    pub(super) part: Part,
    pub(super) buckets: Arc<dyn Buckets>,
}

#[async_trait::async_trait]
impl Buckets for PartBuckets {
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        let store = self.buckets.open(name).await?;
        Ok(Arc::new(PartStore { part: self.part, name: name.to_owned(), store }))
    }

    async fn create(&self, name: &str) -> Result<()> {
        self.buckets.create(name).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.buckets.delete(name).await
    }

    async fn list(&self) -> Result<Vec<String>> {
        self.buckets.list().await
    }

    async fn made_at(&self, name: &str) -> Result<Timestamp> {
        self.buckets.made_at(name).await
    }
}

/// A bucket whose listings return only the objects of one part. Requests for single keys are not restricted.
#[derive(Debug)]
struct PartStore {
    part: Part,
    name: String,
    store: Arc<dyn ObjectStore>,
}

#[async_trait::async_trait]
impl ObjectStore for PartStore {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        self.store.get(key, options).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        self.store.head(key).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        self.store.put(key, body, options).await
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        self.store.multipart(key, attributes, tags).await
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        self.store.copy(from, to, options).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        self.store.delete(key, precondition).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let mut page = self.store.list(request).await?;
        page.entries.retain(|entry| match entry {
            ListEntry::Object(ListedObject { object, .. }) => {
                self.part.has(&self.name, object.key.as_bytes())
            }
            ListEntry::Prefix(_) => true,
        });
        Ok(page)
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.store.tags(key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        self.store.set_tags(key, tags).await
    }
}
