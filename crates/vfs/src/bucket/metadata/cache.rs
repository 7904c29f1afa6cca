//! Cache of object metadata, valid for the revalidation time. Listing the extended attributes of many files requests the
//! metadata of each object only once.

use meta::{Ino, Moment};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{ETag, ObjectMeta, StoreError, Tags};
use tokio::sync::OnceCell;

use super::Described;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::layout::volume_record;
use crate::{Error, Result};

/// Maximum objects in the cache. When it is full, it is emptied. S3 bounds the size of each entry.
const OBJECTS_MAX: usize = 4096;

/// Metadata of objects, by inode.
#[derive(Debug, Default)]
pub(crate) struct MetadataCache {
    objects: Mutex<HashMap<Ino, Entry>>,
    /// Whether the store supports tags.
    has_tags: OnceCell<bool>,
}

/// The cached metadata of one object.
#[derive(Debug, Clone)]
pub(in crate::bucket) struct Entry {
    pub(in crate::bucket) etag: ETag,
    pub(in crate::bucket) described: Described,
    /// Whether the object has tags that were not requested yet.
    pub(in crate::bucket) lacks_tags: bool,
    /// Moment as of which the metadata is known.
    pub(in crate::bucket) seen_at: Moment,
}

impl MetadataCache {
    /// Caches the metadata of an object as seen at `seen_at`.
    pub(crate) fn insert_observed(&self, ino: Ino, meta: &ObjectMeta, seen_at: Moment) {
        let lacks_tags = has_tags(meta);
        let described = meta.attributes.clone().into();
        self.insert(ino, Entry { etag: meta.object.etag.clone(), described, lacks_tags, seen_at });
    }

    /// Caches the metadata that was stored with an object.
    pub(crate) fn insert_stored(&self, ino: Ino, etag: &ETag, described: Described, seen_at: Moment) {
        self.insert(ino, Entry { etag: etag.clone(), described, lacks_tags: false, seen_at });
    }

    /// Drops an object's metadata, because it may have changed.
    pub(crate) fn forget(&self, ino: Ino) {
        self.lock().remove(&ino);
    }

    /// Drops all metadata, because any of it may have changed.
    pub(crate) fn forget_all(&self) {
        self.lock().clear();
    }

    pub(in crate::bucket) fn insert(&self, ino: Ino, entry: Entry) {
        let mut objects = self.lock();
        if objects.len() >= OBJECTS_MAX && !objects.contains_key(&ino) {
            objects.clear();
        }
        objects.insert(ino, entry);
    }

    /// Returns the metadata of an inode's object; `None` if it is not cached, older than `ttl`, or that of an object
    /// with another etag.
    pub(in crate::bucket) fn get(&self, ino: Ino, etag: &ETag, now: Moment, ttl: Duration) -> Option<Entry> {
        let objects = self.lock();
        objects.get(&ino).filter(|entry| entry.etag == *etag && now.since(entry.seen_at) < ttl).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, Entry>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether an object has tags, by the tag count in its HEAD answer.
pub(crate) fn has_tags(meta: &ObjectMeta) -> bool {
    meta.tag_count.is_some_and(|count| count > 0)
}

impl Metadata {
    /// Returns the metadata of an object just read, with its tags. Requests the tags only if there are any.
    pub(crate) async fn read_description(&self, meta: &ObjectMeta) -> Result<Described, StoreError> {
        let tags = if has_tags(meta) { self.mount.store.tags(&meta.object.key).await? } else { Tags::new() };
        Ok(Described { attributes: meta.attributes.clone(), tags })
    }

    /// Fails with EOPNOTSUPP if the store has no tags. Asks the store once per mount.
    pub(crate) async fn ensure_store_has_tags(&self) -> Result<()> {
        let asked = async {
            match self.mount.store.tags(&volume_record(&self.mount.config.prefix)?).await {
                Err(StoreError::Unsupported(_)) => Ok(false),
                Ok(_) | Err(StoreError::NotFound(_)) => Ok(true),
                Err(error) => Err(Error::from(error)),
            }
        };
        match self.cache.has_tags.get_or_try_init(|| asked).await? {
            true => Ok(()),
            false => Err(Error::new(libc::EOPNOTSUPP, "the store does not support tags")),
        }
    }
}
