//! The object store of a volume named by path.

use std::sync::Arc;
use store::{
    Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta,
    ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Settings, Tags, Uploads,
};

use crate::objects::directory_objects::PathObjects;

#[async_trait::async_trait]
impl ObjectStore for PathObjects {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> store::Result<Object> {
        self.naming.get(key, options).await
    }

    async fn head(&self, key: &ObjectKey) -> store::Result<ObjectMeta> {
        self.naming.head(key).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> store::Result<ObjectRef> {
        self.directory.check_writable()?;
        Box::pin(self.naming.put(key, body, options)).await
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> store::Result<Arc<dyn Multipart>> {
        self.directory.check_writable()?;
        self.naming.multipart(key, attributes, tags).await
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> store::Result<ObjectRef> {
        self.directory.check_writable()?;
        Box::pin(self.naming.copy(from, to, options)).await
    }

    async fn rename(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        precondition: Precondition,
    ) -> store::Result<()> {
        self.directory.check_writable()?;
        store::rename_by_copy(self, from, to, precondition).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> store::Result<()> {
        self.directory.check_writable()?;
        Box::pin(self.naming.delete(key, precondition)).await
    }

    async fn list(&self, request: ListRequest) -> store::Result<ListPage> {
        self.naming.list(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> store::Result<Tags> {
        self.naming.tags(key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> store::Result<()> {
        self.directory.check_writable()?;
        self.naming.set_tags(key, tags).await
    }

    async fn sync(&self) -> store::Result<()> {
        self.directory.sync_all().await
    }

    fn uploads(&self) -> Option<&dyn Uploads> {
        Some(self)
    }

    fn settings(&self) -> Option<&dyn Settings> {
        Some(self)
    }
}
