//! The two seams of this crate. Every implementation runs `conformance`.

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

/// How to read.
#[derive(Debug, Clone, Default)]
pub struct GetOptions {
    /// Only these bytes. The end may lie beyond the object's; the beginning may not
    /// ([`StoreError::InvalidRange`](crate::StoreError::InvalidRange)).
    pub range: Option<Range<u64>>,
    /// Fail with `PreconditionFailed` unless the object has this tag.
    pub if_match: Option<ETag>,
    /// This version instead of the newest.
    pub version: Option<VersionId>,
}

/// How to write.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    /// What must hold for the write to take effect.
    pub precondition: Precondition,
    /// Headers to store with the bytes.
    pub attributes: Attributes,
    /// Tags to store with the bytes.
    pub tags: Tags,
    /// What to call the bytes, for a store whose etags say nothing of them: their MD5. Others call them as they do.
    pub etag: Option<ETag>,
}

/// How to copy.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// `None` keeps the source's headers, `Some` replaces them.
    pub attributes: Option<Attributes>,
    /// `None` keeps the source's tags, `Some` replaces them. The copy never shows with other tags.
    pub tags: Option<Tags>,
    /// What must hold at the target.
    pub precondition: Precondition,
    /// How large the source is, in bytes, as far as that is known: a large one may be copied otherwise than a small one.
    pub size_bytes: Option<u64>,
}

/// A bucket: bytes under keys.
///
/// Calls are idempotent unless a precondition is given, so an implementation may repeat them; a repeated
/// conditional write whose first answer was lost is recognised by reading the object back.
#[async_trait::async_trait]
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// Reads an object or a range of it.
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object>;

    /// Describes an object.
    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta>;

    /// Describes an object that may not be there.
    async fn find(&self, key: &ObjectKey) -> Result<Option<ObjectMeta>> {
        match self.head(key).await {
            Err(StoreError::NotFound(_)) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Stores an object atomically: readers see the old bytes or the new.
    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef>;

    /// Begins an object whose bytes come one after the other, so many of them as far as that is known. `None` of a store that
    /// gains nothing by having them early: it gets them by [`put`](Self::put), or in parts.
    async fn writer(
        &self,
        _key: &ObjectKey,
        _len_bytes: Option<u64>,
    ) -> Result<Option<Box<dyn ObjectWriter>>> {
        Ok(None)
    }

    /// Begins an object of many parts; nothing is visible before [`Multipart::complete`].
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
    /// ref's etag, or the target is not as it must be. Who looks meanwhile sees one of the two, or both.
    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        rename_by_copy(self, from, to, precondition).await
    }

    /// Removes an object; without a precondition a key that is not there is no error.
    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()>;

    /// One page of keys.
    async fn list(&self, request: ListRequest) -> Result<ListPage>;

    /// The object's tags.
    async fn tags(&self, key: &ObjectKey) -> Result<Tags>;

    /// Replaces the object's tags.
    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()>;

    /// Returns when everything acknowledged before survives the loss of power here. Most stores acknowledge
    /// nothing else.
    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Uploads that outlast the call that began them, if the store has such.
    fn uploads(&self) -> Option<&dyn Uploads> {
        None
    }

    /// What is set for the bucket as a whole, if the store keeps such.
    fn settings(&self) -> Option<&dyn Settings> {
        None
    }

    /// What was overwritten and deleted, if the store can keep it.
    fn versions(&self) -> Option<&dyn Versions> {
        None
    }
}

/// What was overwritten and deleted (S3 User Guide, "Retaining multiple versions of objects with S3 Versioning").
///
/// A bucket that keeps versions makes one of every `put`, `copy` and `complete`, named in the ref they return, and
/// [`ObjectStore::delete`] leaves a mark. Headers [`LOCK_MODE`](crate::LOCK_MODE), [`LOCK_UNTIL`](crate::LOCK_UNTIL) and
/// [`LOCK_HOLD`](crate::LOCK_HOLD) among an object's attributes are the version's lock from the moment on at which it is
/// there. An id is `null` or one that this store could have given; any other is `Invalid`, and a version that is not
/// there is `NotFound`.
#[async_trait::async_trait]
pub trait Versions: Send + Sync {
    /// Whether versions are kept.
    async fn state(&self) -> Result<Versioning>;

    /// From now on keeps versions or does not; never again [`Versioning::Never`] (`Invalid`).
    async fn set_state(&self, state: Versioning) -> Result<()>;

    /// Describes a version, or without an id the newest, which may be a deletion's mark.
    async fn find(&self, key: &ObjectKey, id: Option<&str>) -> Result<Version>;

    /// Removes a version for good, whatever it is; one that is not there is no error. `Locked` if its lock forbids it.
    /// Where the newest goes, the one before it takes its place.
    async fn remove(&self, key: &ObjectKey, id: &str, removal: Removal) -> Result<Deleted>;

    /// Deletes a key: as [`ObjectStore::delete`], and says what that did.
    async fn mark(&self, key: &ObjectKey, precondition: Precondition) -> Result<Deleted>;

    /// Versions by key, the newest of each first: at most `limit`, fewer only at the end.
    async fn list(&self, request: ListVersions) -> Result<Vec<VersionEntry>>;

    /// A version's tags.
    async fn tags(&self, key: &ObjectKey, id: &str) -> Result<Tags>;

    /// Replaces a version's tags.
    async fn set_tags(&self, key: &ObjectKey, id: &str, tags: Tags) -> Result<()>;

    /// Replaces a version's retention. `Locked` if that would weaken what holds ([`Lock`](crate::Lock)).
    async fn set_retention(
        &self,
        key: &ObjectKey,
        id: &str,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> Result<()>;

    /// Holds a version, or lets it go.
    async fn set_legal_hold(&self, key: &ObjectKey, id: &str, is_held: bool) -> Result<()>;
}

/// How to remove a version.
#[derive(Debug, Clone, Default)]
pub struct Removal {
    /// What must hold of the version; a mark has no tag.
    pub precondition: Precondition,
    /// Also what [`LockMode::Governance`](crate::LockMode::Governance) retains.
    pub bypass_governance: bool,
}

/// A page of versions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListVersions {
    /// Only keys that begin so.
    pub prefix: Bytes,
    /// Fold keys that go on after the prefix and this byte into one common prefix.
    pub delimiter: Option<u8>,
    /// Only entries whose text (key or common prefix) is greater than this.
    pub after: Option<Bytes>,
    /// And the versions of the key `after` that are older than this one.
    pub after_version: Option<VersionId>,
    /// At most this many entries.
    pub limit: usize,
}

/// [`ObjectStore::rename`] where a name is a key: a copy inside the store, and a removal.
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

/// An object whose bytes come one after the other. Dropping it, or an error, gives them up; nothing shows.
#[async_trait::async_trait]
pub trait ObjectWriter: Send + fmt::Debug {
    /// Adds bytes. Returns when the store can take more.
    async fn write(&mut self, piece: Bytes) -> Result<()>;

    /// Makes the object of what was written, as [`ObjectStore::put`] does.
    async fn finish(self: Box<Self>, options: PutOptions) -> Result<ObjectRef>;
}

/// An object in parts. Calls may run at the same time; a part sent twice counts once, the last wins.
///
/// Dropping it without `complete` or `abort` leaves garbage at the store, never a visible object.
#[async_trait::async_trait]
pub trait Multipart: Send + Sync + fmt::Debug {
    /// Stores part `number` (from 1 to 10,000; on S3 every part but the last has at least 5 MiB).
    async fn put_part(&self, number: u32, body: Payload) -> Result<()>;

    /// Makes part `number` of a range of a stored object, inside the store.
    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()>;

    /// Joins the parts in order of their numbers. After `PreconditionFailed` the parts are still there, so that it
    /// may be called again under another condition. After an error that is retryable it may have happened: called again
    /// it then returns the object.
    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef>;

    /// Gives up and frees the parts.
    async fn abort(&self) -> Result<()>;
}

/// Uploads in parts that outlast who began them: an endpoint's clients send each part by a call of its own, and
/// another process may go on where one ended.
///
/// Every call fails with `NotFound` for an upload that is not there: completed, aborted, never begun, or another key's.
#[async_trait::async_trait]
pub trait Uploads: Send + Sync {
    /// Begins an object in parts; the upload's id.
    async fn begin(&self, key: &ObjectKey, attributes: Attributes, tags: Tags) -> Result<String>;

    /// What was said when it was begun.
    async fn find(&self, key: &ObjectKey, id: &str) -> Result<Upload>;

    /// Stores part `number`, from 1 to 10,000; one sent twice counts once, the last wins. A body that fails leaves what
    /// was there. `note` is kept with the part.
    async fn put_part(
        &self,
        key: &ObjectKey,
        id: &str,
        number: u32,
        body: BoxStream<'_, Result<Bytes>>,
        note: PartNote<'_>,
    ) -> Result<Part>;

    /// The parts that are there, by number.
    async fn parts(&self, key: &ObjectKey, id: &str) -> Result<Vec<Part>>;

    /// Makes the object of these of its parts, which are there, in this order; the others go. After
    /// `PreconditionFailed` they are all still there.
    async fn complete(
        &self,
        key: &ObjectKey,
        id: &str,
        numbers: &[u32],
        options: CompleteOptions,
    ) -> Result<ObjectRef>;

    /// Gives up and frees the parts.
    async fn abort(&self, key: &ObjectKey, id: &str) -> Result<()>;

    /// The uploads under way for keys that begin so, by key and then by when they were begun.
    async fn list(&self, prefix: &[u8]) -> Result<Vec<Upload>>;
}

/// Says, when the body of a part was read to its end, what is to be kept with it; an error refuses the part.
pub type PartNote<'a> = Box<dyn FnOnce() -> Result<Option<String>> + Send + 'a>;

/// How to complete an upload.
#[derive(Debug, Clone, Default)]
pub struct CompleteOptions {
    /// User metadata to add to what the upload was begun with.
    pub user: BTreeMap<String, String>,
    /// The etags that the parts must still have, in the order of their numbers. A part that was sent again meanwhile is
    /// `Invalid`. Empty: the parts are taken as they are.
    pub etags: Vec<ETag>,
    /// What to call the object, for a store whose etags say nothing of the bytes. Other stores call it as they do.
    pub etag: Option<ETag>,
    /// What must hold at the key.
    pub precondition: Precondition,
}

impl CompleteOptions {
    /// `Invalid` unless the chosen parts have the etags that they must have. A store asks under its upload's lock.
    pub fn check<'e>(&self, found: impl Iterator<Item = &'e ETag>) -> Result<()> {
        match self.etags.is_empty() || self.etags.iter().eq(found) {
            true => Ok(()),
            false => Err(StoreError::Invalid("a part was sent again meanwhile".to_owned())),
        }
    }
}

/// Small documents that belong to a bucket and are none of its objects, such as its access policy.
#[async_trait::async_trait]
pub trait Settings: Send + Sync {
    /// One of them.
    async fn get(&self, name: &str) -> Result<Option<Bytes>>;

    /// Replaces or removes one; who comes after the call sees it, and the loss of power does not undo it.
    async fn set(&self, name: &str, value: Option<Bytes>) -> Result<()>;
}

/// A place with buckets.
#[async_trait::async_trait]
pub trait Buckets: Send + Sync + fmt::Debug {
    /// Opens a bucket that exists ([`StoreError::NoSuchBucket`](crate::StoreError::NoSuchBucket) otherwise).
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>>;

    /// Makes a bucket; one that exists is an error.
    async fn create(&self, name: &str) -> Result<()>;

    /// Removes an empty bucket.
    async fn delete(&self, name: &str) -> Result<()>;

    /// The buckets' names, ascending.
    async fn list(&self) -> Result<Vec<String>>;

    /// When a bucket was made; where nobody knows, the beginning of time.
    async fn made_at(&self, _name: &str) -> Result<Timestamp> {
        Ok(Timestamp(0))
    }
}
