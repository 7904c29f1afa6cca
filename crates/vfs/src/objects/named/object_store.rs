//! The object store of a volume named by inode.

use std::sync::Arc;
use store::{
    Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta,
    ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Settings, Tags, Uploads,
};

use crate::objects::directory_objects::InodeObjects;

#[async_trait::async_trait]
impl ObjectStore for InodeObjects {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> store::Result<Object> {
        self.get_named(key, options).await
    }

    async fn head(&self, key: &ObjectKey) -> store::Result<ObjectMeta> {
        self.head_named(key)
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> store::Result<ObjectRef> {
        self.check_writable()?;
        Box::pin(self.put_named(key, body, options)).await
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> store::Result<Arc<dyn Multipart>> {
        self.check_writable()?;
        self.multipart_named(key, attributes, tags)
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> store::Result<ObjectRef> {
        self.check_writable()?;
        Box::pin(self.copy_named(from, to, options)).await
    }

    async fn rename(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        precondition: Precondition,
    ) -> store::Result<()> {
        self.check_writable()?;
        self.rename_named(from, to, &precondition).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> store::Result<()> {
        self.check_writable()?;
        Box::pin(self.delete_named(key, &precondition)).await
    }

    async fn list(&self, request: ListRequest) -> store::Result<ListPage> {
        self.list_named(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> store::Result<Tags> {
        self.tags_named(key)
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> store::Result<()> {
        self.check_writable()?;
        self.set_tags_named(key, &tags).await
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
