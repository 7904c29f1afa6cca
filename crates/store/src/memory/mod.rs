//! Objects in memory: a store for tests, and the reference model of a store.
//!
//! Owns an ordered map of objects behind one lock; uploads by id and settings have locks of their own. The store is
//! stricter than servers: it enforces S3's limits on metadata, tags and pages, and on the size of parts in
//! [`ObjectStore::multipart`] (not in [`Uploads`]), and gives every write a new etag, also for equal bytes.
//!
//! Calls never wait. Invariants: a store never uses an etag twice; a stored object changes only by being replaced,
//! except for its tags and locks, and for the version id `null` that it gets when versioning begins.

mod buckets;
mod listing;
mod upload;
mod uploads;
mod versions;

pub use buckets::MemoryBuckets;

use crate::{
    Attributes, Clock, CopyOptions, Deleted, ETag, GetOptions, ListPage, ListRequest, Multipart, Object,
    ObjectKey, ObjectMeta, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, Settings,
    StoreError, Tags, Timestamp, Uploads, VersionId, Versions, byte_range,
};
use futures_util::StreamExt;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use upload::MemoryUpload;
use versions::{Naming, Objects};

/// Limits of a store; the defaults are S3's limits, and listings with attributes, which S3 itself does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Minimum size of every part but the last, in bytes.
    pub part_bytes_min: u64,
    /// Maximum bytes of user metadata, names and values together.
    pub user_metadata_bytes_max: usize,
    /// Maximum number of tags of an object.
    pub tags_max: usize,
    /// Maximum number of entries of a page.
    pub page_entries_max: usize,
    /// Whether listings have the attributes of objects if they are asked for.
    pub lists_attributes: bool,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            part_bytes_min: 5 << 20,
            user_metadata_bytes_max: 2048,
            tags_max: 10,
            page_entries_max: 1000,
            lists_attributes: true,
        }
    }
}

/// A bucket in memory. Clones share their state.
#[derive(Clone)]
pub struct MemoryStore(Arc<Shared>);

/// The state that clones of a store share.
struct Shared {
    objects: RwLock<Objects>,
    last_write: AtomicU64,
    clock: Arc<dyn Clock>,
    limits: MemoryLimits,
    uploads_and_settings: uploads::UploadsAndSettings,
}

/// An object. Kept small, because a store may have a million objects.
#[derive(Clone)]
struct Stored {
    /// The number of the write, from which the etag is derived.
    write: u64,
    modified: Timestamp,
    naming: Naming,
    body: Payload,
    description: Option<Arc<Description>>,
}

/// Attributes and tags, which most objects lack.
#[derive(Clone, Default, PartialEq)]
struct Description {
    attributes: Attributes,
    tags: Tags,
}

impl MemoryStore {
    /// Makes an empty bucket with the limits of S3.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_limits(clock, MemoryLimits::default())
    }

    /// Makes an empty bucket with other limits.
    pub fn with_limits(clock: Arc<dyn Clock>, limits: MemoryLimits) -> Self {
        let (objects, last_write, uploads_and_settings) = Default::default();
        Self(Arc::new(Shared { objects, last_write, clock, limits, uploads_and_settings }))
    }

    /// Returns the number of objects.
    pub fn object_count(&self) -> usize {
        self.0.read().current.len()
    }

    /// Returns whether the bucket has neither objects nor older versions.
    fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("objects", &self.object_count()).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl ObjectStore for MemoryStore {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let stored = self.0.find(key, options.version.as_ref())?;
        if options.if_match.is_some_and(|etag| etag != stored.etag()) {
            return Err(StoreError::PreconditionFailed(key.clone()));
        }
        let body = match options.range {
            Some(range) => slice(key, &stored.body, range)?,
            None => stored.body.clone(),
        };
        let pieces = body.pieces().to_vec();
        Ok(Object { meta: stored.meta(key), body: futures_util::stream::iter(pieces).map(Ok).boxed() })
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        let objects = self.0.read();
        let stored = objects.current.get(key).ok_or_else(|| StoreError::NotFound(key.clone()))?;
        Ok(stored.meta(key))
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let description = self.0.describe(options.attributes, options.tags)?;
        self.0.store(key, body, description, &options.precondition)
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let description = self.0.describe(attributes, tags)?;
        Ok(Arc::new(MemoryUpload::new(self.0.clone(), key.clone(), description)))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let source = self.0.find_exactly(from)?;
        let description = match (options.attributes, options.tags) {
            (None, None) if from.key == *to => {
                return Err(StoreError::Invalid(
                    "a copy of an object to its own key needs new metadata or tags".into(),
                ));
            }
            (None, None) => source.description,
            (attributes, tags) => {
                let kept = source.description.as_deref().cloned().unwrap_or_default();
                let tags = tags.unwrap_or(kept.tags);
                self.0.check_tags(&tags)?;
                self.0.describe(attributes.unwrap_or(kept.attributes), tags)?
            }
        };
        self.0.store(to, source.body, description, &options.precondition)
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        self.0.delete(key, &precondition).map(drop)
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let limits = &self.0.limits;
        let with_attributes = request.with_attributes && limits.lists_attributes;
        let request = ListRequest { with_attributes, ..request };
        let scan = crate::listing::Scan::new(request, limits.page_entries_max)?;
        Ok(listing::page(&self.0.read().current, &scan))
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        Ok(self.0.find(key, None)?.description.map(|found| found.tags.clone()).unwrap_or_default())
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        self.0.check_tags(&tags)?;
        let mut objects = self.0.write();
        let stored = objects.current.get_mut(key).ok_or_else(|| StoreError::NotFound(key.clone()))?;
        let mut description = stored.description.as_deref().cloned().unwrap_or_default();
        description.tags = tags;
        stored.description = description.shared();
        Ok(())
    }

    fn uploads(&self) -> Option<&dyn Uploads> {
        Some(self)
    }

    fn settings(&self) -> Option<&dyn Settings> {
        Some(self)
    }

    fn versions(&self) -> Option<&dyn Versions> {
        Some(self)
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Objects> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &ObjectKey, version: Option<&VersionId>) -> Result<Stored> {
        let objects = self.read();
        let found = match version {
            None => objects.current.get(key),
            Some(version) => objects.find(key, version),
        };
        found.cloned().ok_or_else(|| StoreError::NotFound(key.clone()))
    }

    /// Returns the object with the ref's etag. Fails with `PreconditionFailed` if the object has another, and with
    /// `NotFound` if there is none.
    fn find_exactly(&self, object: &ObjectRef) -> Result<Stored> {
        let stored = self.find(&object.key, object.version.as_ref())?;
        if stored.etag() != object.etag {
            return Err(StoreError::PreconditionFailed(object.key.clone()));
        }
        Ok(stored)
    }

    /// Stores an object. All writes of objects go through this function.
    fn store(
        &self,
        key: &ObjectKey,
        body: Payload,
        description: Option<Arc<Description>>,
        precondition: &Precondition,
    ) -> Result<ObjectRef> {
        let modified = self.clock.now();
        let mut objects = self.write();
        check(key, objects.current.get(key), precondition)?;
        let (write, naming) = (self.next_write(), objects.naming());
        let stored = Stored { write, modified, naming, body, description };
        let object = stored.object_ref(key);
        objects.insert(key, stored);
        Ok(object)
    }

    /// Deletes a key. All deletions but the removal of versions go through this function.
    fn delete(&self, key: &ObjectKey, precondition: &Precondition) -> Result<Deleted> {
        let modified = self.clock.now();
        let mut objects = self.write();
        check(key, objects.current.get(key), precondition)?;
        Ok(objects.mark(key, self.next_write(), modified))
    }

    /// Returns the number of a new write, which orders versions and makes etags unique.
    fn next_write(&self) -> u64 {
        self.last_write.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Checks attributes and tags against the limits; returns `None` if an object has neither.
    fn describe(&self, attributes: Attributes, tags: Tags) -> Result<Option<Arc<Description>>> {
        let metadata_bytes: usize =
            attributes.user.iter().map(|(name, value)| name.len() + value.len()).sum();
        if metadata_bytes > self.limits.user_metadata_bytes_max {
            return Err(StoreError::Invalid(format!(
                "the user metadata has {metadata_bytes} bytes, but at most {} are allowed",
                self.limits.user_metadata_bytes_max
            )));
        }
        self.check_tags(&tags)?;
        Ok(Description { attributes, tags }.shared())
    }

    fn check_tags(&self, tags: &Tags) -> Result<()> {
        if tags.len() > self.limits.tags_max {
            let (found, most) = (tags.len(), self.limits.tags_max);
            return Err(StoreError::Invalid(format!(
                "the object has {found} tags, but at most {most} are allowed"
            )));
        }
        Ok(())
    }
}

/// Makes an etag, which does not look like an MD5, because programs compare MD5s with the bytes that they sent.
fn etag_of(write: u64) -> ETag {
    ETag::new(&format!("{write:016x}-1"))
}

impl Description {
    /// Returns the description for objects to share; `None` for an empty one.
    fn shared(self) -> Option<Arc<Self>> {
        (self != Self::default()).then(|| Arc::new(self))
    }
}

impl Stored {
    fn etag(&self) -> ETag {
        etag_of(self.write)
    }

    fn object_ref(&self, key: &ObjectKey) -> ObjectRef {
        let version = self.naming.id(self.write, self.modified);
        ObjectRef { key: key.clone(), etag: self.etag(), version, last_modified: Some(self.modified) }
    }

    fn meta(&self, key: &ObjectKey) -> ObjectMeta {
        let description = self.description.as_deref();
        let attributes = description.map(|found| found.attributes.clone()).unwrap_or_default();
        let tag_count = Some(description.map_or(0, |found| found.tags.len() as u32));
        ObjectMeta { object: self.object_ref(key), size_bytes: self.body.len(), attributes, tag_count }
    }
}

/// Fails unless a precondition holds for the object that was found.
fn check(key: &ObjectKey, found: Option<&Stored>, precondition: &Precondition) -> Result<()> {
    let holds = match (precondition, found) {
        (Precondition::None, _) | (Precondition::Absent, None) => true,
        (Precondition::Matches(etag), Some(stored)) => stored.etag() == *etag,
        (Precondition::Absent, Some(_)) | (Precondition::Matches(_), None) => false,
    };
    if holds { Ok(()) } else { Err(StoreError::PreconditionFailed(key.clone())) }
}

/// Returns a range of a body without copying, cut to the body's end. Fails as [`byte_range::clamp`] does.
fn slice(key: &ObjectKey, body: &Payload, range: Range<u64>) -> Result<Payload> {
    let range = byte_range::clamp(key, range, body.len())?;
    Ok(body.slice(range))
}
