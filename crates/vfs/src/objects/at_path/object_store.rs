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
        self.get_at_path(key, options).await
    }

    async fn head(&self, key: &ObjectKey) -> store::Result<ObjectMeta> {
        self.head_at_path(key).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> store::Result<ObjectRef> {
        self.check_writable()?;
        Box::pin(self.put_at_path(key, body, options)).await
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> store::Result<Arc<dyn Multipart>> {
        self.check_writable()?;
        self.multipart_at_path(key, attributes, tags).await
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> store::Result<ObjectRef> {
        self.check_writable()?;
        Box::pin(self.copy_at_path(from, to, options)).await
    }

    async fn rename(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        precondition: Precondition,
    ) -> store::Result<()> {
        self.check_writable()?;
        store::rename_by_copy(self, from, to, precondition).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> store::Result<()> {
        self.check_writable()?;
        Box::pin(self.delete_at_path(key, precondition)).await
    }

    async fn list(&self, request: ListRequest) -> store::Result<ListPage> {
        self.list_at_path(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> store::Result<Tags> {
        self.tags_at_path(key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> store::Result<()> {
        self.check_writable()?;
        self.set_tags_at_path(key, tags).await
    }

    async fn sync(&self) -> store::Result<()> {
        self.sync_all().await
    }

    fn uploads(&self) -> Option<&dyn Uploads> {
        Some(self)
    }

    fn settings(&self) -> Option<&dyn Settings> {
        Some(self)
    }
}
