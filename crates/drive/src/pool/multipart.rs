//! Multipart upload of one caller: its parts are stored on the key's home. The placement stays locked meanwhile.

use super::bucket::PoolBucket;
use super::placement_lock::PlacementLock;
use super::run_detached;
use crate::bucket::{DriveBucket, DriveMultipart, copy_range_between_drives};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use store::{Multipart, ObjectRef, Payload, Precondition, Result, part_number};

/// A multipart upload to one drive of the pool.
pub(super) struct PoolMultipart {
    pub(super) bucket: PoolBucket,
    pub(super) home: usize,
    pub(super) inner: Arc<DriveMultipart>,
    pub(super) placement: Arc<PlacementLock>,
}

impl PoolMultipart {
    /// Returns the bucket on the drive of the upload.
    fn target(&self) -> Result<&DriveBucket> {
        self.bucket.bucket_on(self.home)
    }
}

impl fmt::Debug for PoolMultipart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

#[async_trait::async_trait]
impl Multipart for PoolMultipart {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        self.inner.put_part(number, body).await
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        part_number::check(number)?;
        let source = self.bucket.drive_of(&from.key, from.version.as_deref()).await?;
        if source == self.home {
            return self.inner.copy_part(number, from, range).await;
        }
        let source = self.bucket.bucket_on(source)?;
        let stored = copy_range_between_drives(source, from, range, self.target()?).await?;
        self.inner.insert(number, stored)
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        let names = self.bucket.pool.0.names.clone().read_owned().await;
        let (inner, placement) = (self.inner.clone(), self.placement.clone());
        run_detached((placement, names), async move { inner.complete(precondition).await }).await
    }

    async fn abort(&self) -> Result<()> {
        self.inner.abort().await
    }
}
