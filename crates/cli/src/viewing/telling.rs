//! A store that tells a mount's views what was done through it, before whoever did it hears that it is done.

use super::Viewing;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use store::{
    Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta,
    ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, Settings, Tags, Versions,
};
use views::tree::Changing;

/// The store, watched.
pub(super) fn watched(store: Arc<dyn ObjectStore>, views: Arc<Viewing>) -> Arc<dyn ObjectStore> {
    Arc::new(Telling { store, views })
}

#[derive(Debug)]
struct Telling {
    store: Arc<dyn ObjectStore>,
    views: Arc<Viewing>,
}

impl Telling {
    /// A change of an object begins.
    fn changing(&self, key: &ObjectKey) -> Option<Changing> {
        self.views.reach.object(key).map(|name| self.views.tree.changing(&name))
    }

    async fn tell_stored(
        &self,
        object: &ObjectRef,
        size_bytes: u64,
        attributes: Attributes,
        tags: Option<Tags>,
    ) {
        let Some(name) = self.views.reach.object(&object.key) else { return };
        let meta = ObjectMeta { object: object.clone(), size_bytes, attributes, tag_count: None };
        self.views.stored(name, meta, tags).await;
    }

    /// What is there now has to be looked at.
    async fn tell_changed(&self, key: &ObjectKey, tags: Option<Tags>) {
        match self.store.find(key).await {
            Ok(Some(meta)) => self.tell_stored(&meta.object, meta.size_bytes, meta.attributes, tags).await,
            Ok(None) => self.tell_removed(key).await,
            Err(error) => tracing::debug!(%error, "views hear of a change by other ways"),
        }
    }

    async fn tell_removed(&self, key: &ObjectKey) {
        if let Some(name) = self.views.reach.object(key) {
            self.views.removed(&name).await;
        }
    }
}

#[async_trait::async_trait]
impl ObjectStore for Telling {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        self.store.get(key, options).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        self.store.head(key).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let _changing = self.changing(key);
        let size_bytes = body.len();
        let (attributes, tags) = (options.attributes.clone(), options.tags.clone());
        let object = self.store.put(key, body, options).await?;
        self.tell_stored(&object, size_bytes, attributes, Some(tags)).await;
        Ok(object)
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let upload = self.store.multipart(key, attributes.clone(), tags.clone()).await?;
        let telling = Self { store: Arc::clone(&self.store), views: Arc::clone(&self.views) };
        let (key, sizes) = (key.clone(), Mutex::default());
        Ok(Arc::new(TellingUpload { upload, telling, key, attributes, tags, sizes }))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let _changing = self.changing(to);
        let copied = self.store.copy(from, to, options).await?;
        self.tell_changed(to, None).await;
        Ok(copied)
    }

    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        let _changing = [self.changing(&from.key), self.changing(to)];
        self.store.rename(from, to, precondition).await?;
        self.tell_removed(&from.key).await;
        self.tell_changed(to, None).await;
        Ok(())
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        let _changing = self.changing(key);
        self.store.delete(key, precondition).await?;
        self.tell_removed(key).await;
        Ok(())
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.store.list(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.store.tags(key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        let _changing = self.changing(key);
        self.store.set_tags(key, tags.clone()).await?;
        self.tell_changed(key, Some(tags)).await;
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
struct TellingUpload {
    upload: Arc<dyn Multipart>,
    telling: Telling,
    key: ObjectKey,
    attributes: Attributes,
    tags: Tags,
    /// By the parts' numbers, in bytes.
    sizes: Mutex<BTreeMap<u32, u64>>,
}

impl TellingUpload {
    fn note(&self, number: u32, size_bytes: u64) {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).insert(number, size_bytes);
    }

    fn size_bytes(&self) -> u64 {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

#[async_trait::async_trait]
impl Multipart for TellingUpload {
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
        let _changing = self.telling.changing(&self.key);
        let object = self.upload.complete(precondition).await?;
        let (attributes, tags) = (self.attributes.clone(), Some(self.tags.clone()));
        self.telling.tell_stored(&object, self.size_bytes(), attributes, tags).await;
        Ok(object)
    }

    async fn abort(&self) -> Result<()> {
        self.upload.abort().await
    }
}
