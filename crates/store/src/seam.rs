//! The two seams of this crate. Every implementation runs `conformance`.

use crate::{Attributes, ETag, ListPage, ListRequest, Object, ObjectKey, ObjectMeta, ObjectRef, Payload};
use crate::{Precondition, Result, StoreError, Tags, VersionId};
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
}

/// How to copy.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// `None` keeps the source's headers, `Some` replaces them.
    pub attributes: Option<Attributes>,
    /// What must hold at the target.
    pub precondition: Precondition,
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
}
