//! What objects were said to have beside their bytes, for as long as anything is believed: who lists extended attributes of
//! many files asks for each object once.

use meta::{Ino, Inode, Kind, Moment};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{ETag, ObjectMeta, StoreError, Tags};
use tokio::sync::OnceCell;

use super::Described;
use crate::layout::volume_record;
use crate::{Error, Filesystem, Result};

/// So many objects are remembered; one more, and all are forgotten. S3 bounds what each of them has.
const OBJECTS_MAX: usize = 4096;

/// Descriptions of objects, by inode.
#[derive(Debug, Default)]
pub(crate) struct MetadataCache {
    objects: Mutex<HashMap<Ino, Entry>>,
    /// Whether the store has tags.
    has_tags: OnceCell<bool>,
}

#[derive(Debug, Clone)]
struct Entry {
    etag: ETag,
    described: Described,
    /// Its tags were not asked for yet, and there are some.
    lacks_tags: bool,
    seen_at: Moment,
}

impl MetadataCache {
    /// What an object was seen to have by a look at a time.
    pub(crate) fn insert_observed(&self, ino: Ino, meta: &ObjectMeta, seen_at: Moment) {
        let lacks_tags = has_tags(meta);
        let described = meta.attributes.clone().into();
        self.insert(ino, Entry { etag: meta.object.etag.clone(), described, lacks_tags, seen_at });
    }

    /// What was stored with an object.
    pub(crate) fn insert_stored(&self, ino: Ino, etag: &ETag, described: Described, seen_at: Moment) {
        self.insert(ino, Entry { etag: etag.clone(), described, lacks_tags: false, seen_at });
    }

    /// Somebody may have changed it.
    pub(crate) fn forget(&self, ino: Ino) {
        self.lock().remove(&ino);
    }

    /// Somebody may have changed any of them.
    pub(crate) fn forget_all(&self) {
        self.lock().clear();
    }

    fn insert(&self, ino: Ino, entry: Entry) {
        let mut objects = self.lock();
        if objects.len() >= OBJECTS_MAX && !objects.contains_key(&ino) {
            objects.clear();
        }
        objects.insert(ino, entry);
    }

    fn get(&self, ino: Ino, etag: &ETag, now: Moment, ttl: Duration) -> Option<Entry> {
        let objects = self.lock();
        objects.get(&ino).filter(|entry| entry.etag == *etag && now.since(entry.seen_at) < ttl).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, Entry>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an object has tags, as far as its description says.
pub(crate) fn has_tags(meta: &ObjectMeta) -> bool {
    meta.tag_count.is_some_and(|count| count > 0)
}

impl Filesystem {
    /// What the object of an inode has, not older than the revalidation time; nothing if none is stored.
    pub(super) async fn description_of(&self, inode: &Inode) -> Result<Described> {
        let is_any = matches!(inode.kind, Kind::File | Kind::Directory);
        let Some(object) = self.object(inode)?.filter(|_| is_any) else { return Ok(Described::default()) };
        let now = self.moment();
        let known = self.metadata_cache.get(inode.ino, &object.etag, now, self.config.metadata_ttl);
        let mut entry = match known {
            Some(entry) => entry,
            None => {
                let Some(meta) = self.store.find(&object.key).await? else { return Ok(Described::default()) };
                if meta.object.etag != object.etag {
                    self.revalidate(inode).await?;
                }
                self.metadata_cache.insert_observed(inode.ino, &meta, now);
                let (etag, lacks_tags) = (meta.object.etag.clone(), has_tags(&meta));
                Entry { etag, described: meta.attributes.into(), lacks_tags, seen_at: now }
            }
        };
        if entry.lacks_tags {
            entry.described.tags = self.store.tags(&object.key).await?;
            entry.lacks_tags = false;
            self.metadata_cache.insert(inode.ino, entry.clone());
        }
        Ok(entry.described)
    }

    /// What an object that was just looked at has, its tags included; who has none is not asked for them.
    pub(crate) async fn read_description(&self, meta: &ObjectMeta) -> Result<Described, StoreError> {
        let tags = if has_tags(meta) { self.store.tags(&meta.object.key).await? } else { Tags::new() };
        Ok(Described { attributes: meta.attributes.clone(), tags })
    }

    /// An error where the store has no tags.
    pub(super) async fn ensure_store_has_tags(&self) -> Result<()> {
        let asked = async {
            match self.store.tags(&volume_record(&self.config.prefix)?).await {
                Err(StoreError::Unsupported(_)) => Ok(false),
                Ok(_) | Err(StoreError::NotFound(_)) => Ok(true),
                Err(error) => Err(Error::from(error)),
            }
        };
        match self.metadata_cache.has_tags.get_or_try_init(|| asked).await? {
            true => Ok(()),
            false => Err(Error::new(libc::EOPNOTSUPP, "the store has no tags")),
        }
    }
}
