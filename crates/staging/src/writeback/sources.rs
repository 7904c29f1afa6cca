//! The objects that pending objects are made of, and guards that keep this store from replacing them in the bucket.

use super::Writeback;
use super::errors::closed;
use super::extent::Extent;
use super::log_record::ObjectDescription;
use super::pending::PendingObject;
use std::collections::HashSet;
use std::sync::Arc;
use store::{Attributes, ObjectKey, ObjectRef, Result, StoreError, Tags};

/// The bytes and metadata that a copy begins with.
pub(super) struct CopySource {
    pub(super) extents: Vec<Extent>,
    pub(super) attributes: Attributes,
    pub(super) tags: Tags,
    /// Held until the copy is a change of its own.
    pub(super) held: HeldSources,
}

/// Guard that protects objects of the bucket from being replaced by this store.
#[derive(Debug)]
pub(super) struct HeldSources {
    writeback: Arc<Writeback>,
    keys: HashSet<ObjectKey>,
}

impl Drop for HeldSources {
    fn drop(&mut self) {
        self.writeback.pending().release_sources(&self.keys);
        self.writeback.activity.wake.notify_one();
    }
}

impl Writeback {
    /// Returns the pending object of a key, if there is one, and a guard. While the guard exists, the bucket objects
    /// that the pending object is made of, or else the object under the key in the bucket, are not replaced by this
    /// store.
    pub(super) async fn hold_object(
        &self,
        key: &ObjectKey,
    ) -> Result<(Option<Arc<PendingObject>>, HeldSources)> {
        let writeback = self.me.upgrade().ok_or_else(closed)?;
        self.complete_if_uploaded(key).await?;
        loop {
            let progress = self.activity.progress.notified();
            {
                let mut pending = self.pending();
                let object = match pending.get(key) {
                    Some(change) => match &change.object {
                        Some(object) => Some(object.clone()),
                        None => return Err(StoreError::NotFound(key.clone())),
                    },
                    None => None,
                };
                let keys =
                    object.as_ref().map_or_else(|| HashSet::from([key.clone()]), |object| object.sources());
                if pending.hold_sources(&keys) {
                    return Ok((object, HeldSources { writeback, keys }));
                }
            }
            progress.await;
        }
    }

    /// Returns the extents, attributes and tags of exactly this object.
    pub(super) async fn copy_source(&self, from: &ObjectRef) -> Result<CopySource> {
        let (object, held) = self.hold_object(&from.key).await?;
        if let Some(object) = object {
            if object.description.etag != from.etag {
                return Err(StoreError::PreconditionFailed(from.key.clone()));
            }
            let ObjectDescription { attributes, tags, .. } = object.description.clone();
            return Ok(CopySource { extents: object.extents.clone(), attributes, tags, held });
        }
        let object = self.bucket_ref(from)?;
        let meta = self.bucket.store.head(&object.key).await?;
        if meta.object.etag != object.etag && !object.etag.is_provisional() {
            return Err(StoreError::PreconditionFailed(from.key.clone()));
        }
        let tags = match self.bucket.store.tags(&object.key).await {
            Ok(tags) => tags,
            Err(StoreError::Unsupported(_)) => Tags::new(),
            Err(error) => return Err(error),
        };
        let extents = match meta.size_bytes {
            0 => Vec::new(),
            size => vec![Extent::Bucket(meta.object, 0..size)],
        };
        Ok(CopySource { extents, attributes: meta.attributes, tags, held })
    }
}
