//! The traits of object stores and of sets of buckets. Every implementation is tested by `conformance`.

use crate::{
    Attributes, Deleted, ETag, ListPage, ListRequest, Object, ObjectKey, ObjectMeta, ObjectRef, Part, Payload,
};
use crate::{Precondition, Result, Retention, StoreError, Tags, Timestamp, Upload};
use crate::{Version, VersionEntry, VersionId, Versioning};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Options of a read.
#[derive(Debug, Clone, Default)]
pub struct GetOptions {
    /// Read only these bytes. The end may lie beyond the object's end; the beginning may not
    /// ([`StoreError::InvalidRange`]).
    pub range: Option<Range<u64>>,
    /// Fail with `PreconditionFailed` unless the object has this tag.
    pub if_match: Option<ETag>,
    /// Read this version instead of the newest.
    pub version: Option<VersionId>,
}

/// Options of a write.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    /// The condition under which the write takes effect.
    pub precondition: Precondition,
    /// Headers to store with the bytes.
    pub attributes: Attributes,
    /// Tags to store with the bytes.
    pub tags: Tags,
    /// The etag to give the object, its MD5, for stores that accept one. Other stores ignore it.
    pub etag: Option<ETag>,
}

/// Options of a copy.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// `None` keeps the source's headers, `Some` replaces them.
    pub attributes: Option<Attributes>,
    /// `None` keeps the source's tags, `Some` replaces them. The copy is never visible with other tags.
    pub tags: Option<Tags>,
    /// The condition at the target.
    pub precondition: Precondition,
    /// Whether the caller has just found that the condition holds. A store whose server cannot enforce it does not look again, and another
    /// client's change since then is overwritten; other stores ignore this.
    pub is_checked: bool,
    /// Size of the source in bytes, if known: a store may copy a large object differently from a small one.
    pub size_bytes: Option<u64>,
    /// Whether the source is renamed, so that its deletion follows. A store that logs changes notes this with the copy, so that a kill in
    /// between leaves no second name; other stores ignore it.
    pub is_rename: bool,
}

/// A bucket: objects by key.
///
/// Calls are idempotent unless a precondition is given, so an implementation may repeat them. If the response to a
/// conditional write was lost, the implementation repeats the write and reads the object back to find out whether the
/// first attempt took effect.
#[async_trait::async_trait]
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// Reads an object or a range of it. Fails with `NotFound` if there is none.
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object>;

    /// Describes an object. Fails with `NotFound` if there is none.
    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta>;

    /// Describes an object; `None` if there is none.
    async fn find(&self, key: &ObjectKey) -> Result<Option<ObjectMeta>> {
        match self.head(key).await {
            Err(StoreError::NotFound(_)) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Stores an object atomically: readers see the old bytes or the new.
    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef>;

    /// Begins an object whose bytes arrive in order; `len_bytes` is its length, if known. Returns `None` if the store
    /// gains nothing from early bytes: the caller then uses [`put`](Self::put) or [`multipart`](Self::multipart).
    async fn writer(
        &self,
        _key: &ObjectKey,
        _len_bytes: Option<u64>,
    ) -> Result<Option<Box<dyn ObjectWriter>>> {
        Ok(None)
    }

    /// Begins an object in parts, which becomes visible by [`Multipart::complete`].
    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>>;

    /// Copies an object inside the store, tags included. Fails with `PreconditionFailed` if the source no
    /// longer has the ref's etag.
    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef>;

    /// Moves an object to another key, tags included. Fails with `PreconditionFailed` if the source no longer has the
    /// ref's etag, or if the target does not meet the precondition. Concurrent readers see the object at one of the two
    /// keys, or at both.
    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        rename_by_copy(self, from, to, precondition).await
    }

    /// Removes an object. Without a precondition, a missing key is not an error.
    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()>;

    /// Returns one page of keys.
    async fn list(&self, request: ListRequest) -> Result<ListPage>;

    /// Returns the object's tags.
    async fn tags(&self, key: &ObjectKey) -> Result<Tags>;

    /// Replaces the object's tags.
    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()>;

    /// Returns when all acknowledged writes survive a power failure of this machine. Most stores acknowledge only such
    /// writes.
    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Returns access to multipart uploads by id, if the store supports them.
    fn uploads(&self) -> Option<&dyn Uploads> {
        None
    }

    /// Returns access to the bucket's settings, if the store keeps any.
    fn settings(&self) -> Option<&dyn Settings> {
        None
    }

    /// Returns access to versions, if the store supports them.
    fn versions(&self) -> Option<&dyn Versions> {
        None
    }
}

/// Versions of objects (S3 User Guide, "Retaining multiple versions of objects with S3 Versioning").
///
/// If a bucket keeps versions, every `put`, `copy` and `complete` makes a version, whose id is in the returned ref, and
/// [`ObjectStore::delete`] makes a delete marker. The headers [`LOCK_MODE`](crate::LOCK_MODE),
/// [`LOCK_UNTIL`](crate::LOCK_UNTIL) and [`LOCK_HOLD`](crate::LOCK_HOLD) among an object's attributes lock the version
/// from its creation on. A version id is `null` or has the form of this store's ids; any other id is `Invalid`, and a
/// missing version is `NotFound`.
#[async_trait::async_trait]
pub trait Versions: Send + Sync {
    /// Returns the bucket's versioning state.
    async fn state(&self) -> Result<Versioning>;

    /// Enables or suspends versioning. [`Versioning::Never`] is `Invalid`: S3 cannot return to that state.
    async fn set_state(&self, state: Versioning) -> Result<()>;

    /// Describes a version, or without an id the newest version. Either may be a delete marker.
    async fn find(&self, key: &ObjectKey, id: Option<&str>) -> Result<Version>;

    /// Removes a version or delete marker permanently; a missing version is not an error. Fails with `Locked` if an
    /// object lock forbids the removal. If the newest version is removed, the previous version becomes the newest.
    async fn remove(&self, key: &ObjectKey, id: &str, removal: Removal) -> Result<Deleted>;

    /// Deletes a key like [`ObjectStore::delete`], and returns the effect.
    async fn mark(&self, key: &ObjectKey, precondition: Precondition) -> Result<Deleted>;

    /// Returns versions in order of their keys, the newest version of each key first: exactly `limit` entries, fewer
    /// only at the end of the listing. A store may reduce the limit to
    /// [`listing::PAGE_ENTRIES_MAX`](crate::listing::PAGE_ENTRIES_MAX).
    async fn list(&self, request: ListVersions) -> Result<Vec<VersionEntry>>;

    /// Returns a version's tags.
    async fn tags(&self, key: &ObjectKey, id: &str) -> Result<Tags>;

    /// Replaces a version's tags.
    async fn set_tags(&self, key: &ObjectKey, id: &str, tags: Tags) -> Result<()>;

    /// Replaces a version's retention. Fails with `Locked` if that would weaken the present lock
    /// ([`Lock`](crate::Lock)).
    async fn set_retention(
        &self,
        key: &ObjectKey,
        id: &str,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> Result<()>;

    /// Sets or clears a version's legal hold.
    async fn set_legal_hold(&self, key: &ObjectKey, id: &str, is_held: bool) -> Result<()>;
}

/// Options of the removal of a version.
#[derive(Debug, Clone, Default)]
pub struct Removal {
    /// The condition on the version. A delete marker has no etag, so it never meets [`Precondition::Matches`].
    pub precondition: Precondition,
    /// Also remove a version that is locked in mode [`LockMode::Governance`](crate::LockMode::Governance).
    pub bypass_governance: bool,
}

/// A request for a page of versions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListVersions {
    /// Return only keys with this prefix.
    pub prefix: Bytes,
    /// Group keys that contain this byte after the prefix into one entry, a common prefix.
    pub delimiter: Option<u8>,
    /// Return only entries whose text (key or common prefix) is greater than this.
    pub after: Option<Bytes>,
    /// Also return the versions of the key `after` that are older than this version.
    pub after_version: Option<VersionId>,
    /// Maximum number of entries.
    pub limit: usize,
}

/// Implements [`ObjectStore::rename`] by a copy inside the store and a removal, for stores without an atomic rename.
pub async fn rename_by_copy<S: ObjectStore + ?Sized>(
    store: &S,
    from: &ObjectRef,
    to: &ObjectKey,
    precondition: Precondition,
) -> Result<()> {
    if from.key == *to {
        return Err(StoreError::Invalid("an object cannot be moved to its own key".into()));
    }
    store.copy(from, to, CopyOptions { precondition, ..CopyOptions::default() }).await?;
    store.delete(&from.key, Precondition::Matches(from.etag.clone())).await
}

/// An object whose bytes are written in order. Dropping the writer, or an error, discards the bytes; no object becomes
/// visible.
#[async_trait::async_trait]
pub trait ObjectWriter: Send + fmt::Debug {
    /// Appends bytes. Returns when the store can take more.
    async fn write(&mut self, piece: Bytes) -> Result<()>;

    /// Stores the written bytes as the object, like [`ObjectStore::put`].
    async fn finish(self: Box<Self>, options: PutOptions) -> Result<ObjectRef>;
}

/// A multipart upload. Calls may run concurrently; a part that is sent again replaces the earlier part of its number.
///
/// Dropping the upload without `complete` or `abort` leaves garbage in the store, never a visible object.
#[async_trait::async_trait]
pub trait Multipart: Send + Sync + fmt::Debug {
    /// Stores part `number` (1 to 10,000; on S3 every part but the last has at least 5 MiB).
    async fn put_part(&self, number: u32, body: Payload) -> Result<()>;

    /// Makes part `number` from a range of a stored object, inside the store.
    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()>;

    /// Joins the parts in order of their numbers. After `PreconditionFailed` the parts still exist, so that the caller can
    /// repeat the call under another condition. After a retryable error the upload may have been completed: then a repeated
    /// call returns the object.
    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef>;

    /// Aborts the upload and frees its parts.
    async fn abort(&self) -> Result<()>;
}

/// Multipart uploads by id. They survive the process that began them: an endpoint's clients send each part by a call of
/// its own, and another process can continue the upload.
///
/// Every call fails with `NotFound` for an upload that was completed, aborted or never begun, or that belongs to another
/// key.
#[async_trait::async_trait]
pub trait Uploads: Send + Sync {
    /// Begins a multipart upload and returns its id.
    async fn begin(&self, key: &ObjectKey, attributes: Attributes, tags: Tags) -> Result<String>;

    /// Describes an upload.
    async fn find(&self, key: &ObjectKey, id: &str) -> Result<Upload>;

    /// Stores part `number` (1 to 10,000), replacing an earlier part of this number. If the body fails, the earlier part
    /// stays. The text that `make_note` returns is stored with the part.
    async fn put_part(
        &self,
        key: &ObjectKey,
        id: &str,
        number: u32,
        body: BoxStream<'_, Result<Bytes>>,
        make_note: MakePartNote<'_>,
    ) -> Result<Part>;

    /// Returns the stored parts, by number.
    async fn parts(&self, key: &ObjectKey, id: &str) -> Result<Vec<Part>>;

    /// Joins the chosen parts, which must be stored, in this order, and discards the other parts. After
    /// `PreconditionFailed` all parts still exist.
    async fn complete(
        &self,
        key: &ObjectKey,
        id: &str,
        numbers: &[u32],
        options: CompleteOptions,
    ) -> Result<ObjectRef>;

    /// Aborts the upload and frees its parts.
    async fn abort(&self, key: &ObjectKey, id: &str) -> Result<()>;

    /// Returns the uploads in progress for keys with a prefix, in order of key and time of beginning.
    async fn list(&self, prefix: &[u8]) -> Result<Vec<Upload>>;
}

/// A function that is called when the body of a part was read completely. It returns a text to store with the part; an
/// error refuses the part.
pub type MakePartNote<'a> = Box<dyn FnOnce() -> Result<Option<String>> + Send + 'a>;

/// Options of completing an upload.
#[derive(Debug, Clone, Default)]
pub struct CompleteOptions {
    /// User metadata to add to the metadata given when the upload was begun.
    pub user: BTreeMap<String, String>,
    /// The etags that the parts must have, in the order of their numbers; a part that was replaced is `Invalid`. If empty,
    /// the etags are not checked.
    pub etags: Vec<ETag>,
    /// The etag to give the object, for stores that accept one. Other stores ignore it.
    pub etag: Option<ETag>,
    /// The condition at the key.
    pub precondition: Precondition,
}

impl CompleteOptions {
    /// Fails with `Invalid` unless the chosen parts have the required etags. Stores call this under the upload's lock.
    pub fn check<'e>(&self, found: impl Iterator<Item = &'e ETag>) -> Result<()> {
        match self.etags.is_empty() || self.etags.iter().eq(found) {
            true => Ok(()),
            false => Err(StoreError::Invalid(
                "a part was sent again after its etag was read: list the parts and complete the upload again"
                    .to_owned(),
            )),
        }
    }
}

/// Small documents that belong to a bucket but are not objects, such as its access policy.
#[async_trait::async_trait]
pub trait Settings: Send + Sync {
    /// Returns a document; `None` if there is none of this name.
    async fn get(&self, name: &str) -> Result<Option<Bytes>>;

    /// Replaces or removes a document. When the call returns, the change is visible to all readers and survives a power
    /// failure.
    async fn set(&self, name: &str, value: Option<Bytes>) -> Result<()>;
}

/// A set of buckets.
#[async_trait::async_trait]
pub trait Buckets: Send + Sync + fmt::Debug {
    /// Opens a bucket that exists ([`StoreError::NoSuchBucket`] otherwise).
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>>;

    /// Makes a bucket. Fails with `BucketState` if it exists, and with `Invalid` for a name that no bucket can have.
    async fn create(&self, name: &str) -> Result<()>;

    /// Removes an empty bucket. Fails with `BucketState` if it is not empty.
    async fn delete(&self, name: &str) -> Result<()>;

    /// Returns the buckets' names, ascending.
    async fn list(&self) -> Result<Vec<String>>;

    /// Returns when a bucket was made; the Unix epoch if that is unknown.
    async fn made_at(&self, _name: &str) -> Result<Timestamp> {
        Ok(Timestamp(0))
    }
}
