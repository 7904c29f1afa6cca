//! A store that notifies a mount's views of changes made through it, before the caller learns that a change is done.
//! Changes by the store's `versions` are not reported.

use super::MountedViews;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use store::{
    Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta,
    ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, Settings, Tags, Versions,
};
use views::tree::Changing;

/// Wraps a store, to notify the views of changes.
pub(super) fn wrap(store: Arc<dyn ObjectStore>, views: Arc<MountedViews>) -> Arc<dyn ObjectStore> {
    Arc::new(NotifyingStore { store, views })
}

#[derive(Debug)]
struct NotifyingStore {
    store: Arc<dyn ObjectStore>,
    views: Arc<MountedViews>,
}

impl NotifyingStore {
    /// Notifies the views that a change of an object begins, which lasts until the returned value is dropped. Returns `None` for a key that
    /// does not belong to an object.
    fn begin_change(&self, key: &ObjectKey) -> Option<Changing> {
        self.views.scope.object(key).map(|name| self.views.tree.changing(&name))
    }

    async fn notify_stored(
        &self,
        object: &ObjectRef,
        size_bytes: u64,
        attributes: Attributes,
        tags: Option<Tags>,
    ) {
        let Some(name) = self.views.scope.object(&object.key) else { return };
        let meta = ObjectMeta { object: object.clone(), size_bytes, attributes, tag_count: None };
        self.views.notify_stored(name, meta, tags).await;
    }

    /// Notifies the views of a change whose result must be read from the store.
    async fn notify_changed(&self, key: &ObjectKey, tags: Option<Tags>) {
        match self.store.find(key).await {
            Ok(Some(meta)) => self.notify_stored(&meta.object, meta.size_bytes, meta.attributes, tags).await,
            Ok(None) => self.notify_removed(key).await,
            Err(error) => {
                tracing::debug!(%error, "cannot read a changed object, so views learn of the change later")
            }
        }
    }

    async fn notify_removed(&self, key: &ObjectKey) {
        if let Some(name) = self.views.scope.object(key) {
            self.views.notify_removed(&name).await;
        }
    }
}

#[async_trait::async_trait]
impl ObjectStore for NotifyingStore {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        self.store.get(key, options).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        self.store.head(key).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let _changing = self.begin_change(key);
        let size_bytes = body.len();
        let (attributes, tags) = (options.attributes.clone(), options.tags.clone());
        let object = self.store.put(key, body, options).await?;
        self.notify_stored(&object, size_bytes, attributes, Some(tags)).await;
        Ok(object)
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let upload = self.store.multipart(key, attributes.clone(), tags.clone()).await?;
        let store = Self { store: Arc::clone(&self.store), views: Arc::clone(&self.views) };
        let (key, sizes) = (key.clone(), Mutex::default());
        Ok(Arc::new(NotifyingUpload { upload, store, key, attributes, tags, sizes }))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let _changing = self.begin_change(to);
        let copied = self.store.copy(from, to, options).await?;
        self.notify_changed(to, None).await;
        Ok(copied)
    }

    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        let _changing = [self.begin_change(&from.key), self.begin_change(to)];
        self.store.rename(from, to, precondition).await?;
        self.notify_removed(&from.key).await;
        self.notify_changed(to, None).await;
        Ok(())
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        let _changing = self.begin_change(key);
        self.store.delete(key, precondition).await?;
        self.notify_removed(key).await;
        Ok(())
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.store.list(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.store.tags(key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        let _changing = self.begin_change(key);
        self.store.set_tags(key, tags.clone()).await?;
        self.notify_changed(key, Some(tags)).await;
        Ok(())
    }

    async fn sync(&self) -> Result<()> {
        self.store.sync().await
    }

    fn settings(&self) -> Option<&dyn Settings> {
        self.store.settings()
    }

    fn versions(&self) -> Option<&dyn Versions> {
        self.store.versions()
    }
}

#[derive(Debug)]
struct NotifyingUpload {
    upload: Arc<dyn Multipart>,
    store: NotifyingStore,
    key: ObjectKey,
    attributes: Attributes,
    tags: Tags,
    /// Sizes of the parts in bytes, by number.
    sizes: Mutex<BTreeMap<u32, u64>>,
}

impl NotifyingUpload {
    /// Notes the length of a part.
    fn note(&self, number: u32, size_bytes: u64) {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).insert(number, size_bytes);
    }

    fn size_bytes(&self) -> u64 {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

#[async_trait::async_trait]
impl Multipart for NotifyingUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        let size_bytes = body.len();
        self.upload.put_part(number, body).await?;
        self.note(number, size_bytes);
        Ok(())
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        let size_bytes = range.end.saturating_sub(range.start);
        self.upload.copy_part(number, from, range).await?;
        self.note(number, size_bytes);
        Ok(())
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        let _changing = self.store.begin_change(&self.key);
        let object = self.upload.complete(precondition).await?;
        let (attributes, tags) = (self.attributes.clone(), Some(self.tags.clone()));
        self.store.notify_stored(&object, self.size_bytes(), attributes, tags).await;
        Ok(object)
    }

    async fn abort(&self) -> Result<()> {
        self.upload.abort().await
    }
}
