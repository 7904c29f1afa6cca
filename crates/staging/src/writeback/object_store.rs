//! The calls of a store: reads of pending objects or of the bucket, and changes.

use super::Writeback;
use super::condition::Condition;
use super::errors::closed;
use super::extent::slice_extents;
use super::log_record::ObjectDescription;
use super::logged_upload::LoggedUpload;
use super::make_change::NewObject;
use super::pending::PendingObject;
use super::sources::CopySource;
use futures_util::StreamExt as _;
use std::sync::Arc;
use store::{
    Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta,
    ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, StoreError, Tags, byte_range,
};

#[async_trait::async_trait]
impl ObjectStore for Writeback {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        if self.pending_object(key).is_none() {
            return self.get_from_bucket(key, options).await;
        }
        let (Some(object), held) = self.hold_object(key).await? else {
            // The object was uploaded between the two lookups, so the bucket has it.
            return self.get_from_bucket(key, options).await;
        };
        if options.version.is_some() {
            return Err(StoreError::NotFound(key.clone()));
        }
        if options.if_match.as_ref().is_some_and(|wanted| *wanted != object.description.etag) {
            return Err(StoreError::PreconditionFailed(key.clone()));
        }
        let size = object.size_bytes();
        let range = match options.range.clone() {
            Some(range) => byte_range::clamp(key, range, size)?,
            None => 0..size,
        };
        let body = match self.bucket.read_extents(slice_extents(&object.extents, &range)).await {
            // The pending change only has new attributes, and another client has replaced the object that they belong
            // to.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_))
                if options.if_match.is_none() && object.reuses_only(key) =>
            {
                return self.get_from_bucket(key, options).await;
            }
            body => body?,
        };
        let body = body.inspect(move |_| {
            let _held_while_read = &held;
        });
        Ok(Object { meta: object.meta(key), body: body.boxed() })
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        match self.pending_object(key) {
            Some(object) => Ok(object?.meta(key)),
            None => {
                let meta = self.bucket.store.head(key).await?;
                Ok(ObjectMeta { object: self.etags.aliases().with_issued_tag(meta.object), ..meta })
            }
        }
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let condition = self.check_in_bucket(key, &options.precondition).await?;
        let description = self.stamps.describe(options.attributes, options.tags);
        let object = object_ref(key, &description);
        self.make_change(key, &condition, Some(NewObject::new(description, Vec::new())), body).await?;
        Ok(object)
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let me = self.me.upgrade().ok_or_else(closed)?;
        Ok(Arc::new(LoggedUpload::new(me, key.clone(), attributes, tags)))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        if from.key == *to && options.attributes.is_none() && options.tags.is_none() {
            return Err(StoreError::Invalid("a copy of an object onto itself changes nothing".into()));
        }
        let CopySource { extents, attributes, tags, held: _held } = self.copy_source(from).await?;
        let is_unchanged = Precondition::Matches(from.etag.clone());
        // A copy onto itself replaces no other object than its source.
        let replaced = if from.key == *to { &is_unchanged } else { &options.precondition };
        let condition = self.check_in_bucket(to, replaced).await?;
        let tags = options.tags.unwrap_or(tags);
        let description = self.stamps.describe(options.attributes.unwrap_or(attributes), tags);
        let object = object_ref(to, &description);
        let renamed_from = options.is_rename.then(|| from.clone());
        let copy = NewObject { renamed_from, ..NewObject::new(description, extents) };
        self.make_change(to, &condition, Some(copy), Payload::default()).await?;
        Ok(object)
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        let condition = self.check_in_bucket(key, &precondition).await?;
        self.make_change(key, &condition, None, Payload::default()).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.list_merged(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        match self.pending_object(key) {
            Some(object) => Ok(object?.description.tags.clone()),
            None => self.bucket.store.tags(key).await,
        }
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        // Tags are part of a pending object; there is no separate record for them.
        loop {
            if self.pending_object(key).is_none() {
                return self.bucket.store.set_tags(key, tags).await;
            }
            let (Some(object), _held) = self.hold_object(key).await? else { continue };
            let description = ObjectDescription { tags: tags.clone(), ..object.description.clone() };
            let same = Precondition::Matches(object.description.etag.clone());
            let condition = Condition { precondition: &same, read: None };
            let object = NewObject::new(description, object.extents.clone());
            match self.make_change(key, &condition, Some(object), Payload::default()).await {
                Err(StoreError::PreconditionFailed(_)) => {}
                changed => return changed,
            }
        }
    }

    async fn sync(&self) -> Result<()> {
        self.sync_log().await?;
        self.bucket.store.sync().await
    }
}

impl Writeback {
    /// Reads an object that has no pending change.
    async fn get_from_bucket(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let if_match = match options.if_match {
            Some(etag) => Some(self.bucket_ref(&ObjectRef::new(key.clone(), etag))?.etag),
            None => None,
        };
        // The etag may be forgotten, but a key that is used once never has other bytes.
        let if_match = if_match.filter(|etag| !etag.is_provisional());
        let mut object = self.bucket.store.get(key, GetOptions { if_match, ..options }).await?;
        object.meta.object = self.etags.aliases().with_issued_tag(object.meta.object);
        Ok(object)
    }

    /// Returns the pending object of a key, or `NotFound` if the key's pending change is a deletion; `None` if no
    /// change of the key is pending.
    fn pending_object(&self, key: &ObjectKey) -> Option<Result<Arc<PendingObject>>> {
        let pending = self.pending();
        let change = pending.get(key)?;
        Some(change.object.clone().ok_or_else(|| StoreError::NotFound(key.clone())))
    }
}

pub(super) fn object_ref(key: &ObjectKey, description: &ObjectDescription) -> ObjectRef {
    ObjectRef::new(key.clone(), description.etag.clone())
}
